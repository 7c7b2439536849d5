# needs:
@triton.jit
def wg_fold_max(a, b):
    """The larger, or a NaN of either."""
    return tl.where((a > b) | (a != a), a, b)
