# needs:
@triton.jit
def wg_integer(value: tl.constexpr, C: tl.constexpr):
    """An integer constant as C, wrapped around where C cannot hold it, as a cast in C does it."""
    return tl.full((), value, tl.int64).to(C)
