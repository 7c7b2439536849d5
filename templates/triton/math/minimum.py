# needs:
@triton.jit
def wg_minimum(x, y):
    """The smaller; a NaN on either side gives NaN."""
    return tl.where((x < y) | (x != x), x, y)
