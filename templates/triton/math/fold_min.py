# needs:
@triton.jit
def wg_fold_min(a, b):
    """The smaller; NaN if either is NaN."""
    return tl.where((a < b) | (a != a), a, b)
