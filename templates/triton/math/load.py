# needs:
@triton.jit
def wg_load(p, mask, C: tl.constexpr):
    """Load from `p` as C; 0 where the mask is false. bool gives 0 and 1."""
    return tl.load(p, mask=mask, other=0).to(C)
