# needs:
@triton.jit
def wg_fold_max(a, b):
    """The larger; NaN if either is NaN."""
    return tl.where((a > b) | (a != a), a, b)
