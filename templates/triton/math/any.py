# needs:
@triton.jit
def wg_any(mask):
    """Whether the mask is true for any element of the program: a scalar, for loops that few elements need.

    Operands of one element are scalars, and Triton reduces blocks alone: zeros make a block of them."""
    return tl.max(mask.to(tl.int32) + tl.zeros([1], tl.int32), axis=None) > 0
