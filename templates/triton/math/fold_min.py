# needs:
@triton.jit
def wg_fold_min(a, b):
    """The smaller, or a NaN of either."""
    return tl.where((a < b) | (a != a), a, b)
