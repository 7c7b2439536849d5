# needs:
@triton.jit
def wg_any(mask):
    """Whether the mask is true for any element of the program: a scalar, for loops that few elements need."""
    return tl.max(mask.to(tl.int32), axis=None) > 0
