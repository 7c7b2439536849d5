# needs:
@triton.jit
def wg_any(mask):
    """Whether the mask holds for any element of the program: a scalar, for the loops that few elements ask for."""
    return tl.max(mask.to(tl.int32), axis=None) > 0
