# needs:
@triton.jit
def wg_maximum(x, y):
    """The larger; a NaN on either side gives NaN."""
    return tl.where((x > y) | (x != x), x, y)
