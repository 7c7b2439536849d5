# needs:
@triton.jit
def wg_maximum(x, y):
    """The larger; NaN if either is NaN."""
    return tl.where((x > y) | (x != x), x, y)
