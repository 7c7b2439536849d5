# needs:
@triton.jit
def wg_minimum(x, y):
    """The smaller; NaN if either is NaN."""
    return tl.where((x < y) | (x != x), x, y)
