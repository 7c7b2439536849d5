# needs:
@triton.jit
def wg_fold_sum(a, b):
    return a + b


@triton.jit
def wg_fold_prod(a, b):
    return a * b


@triton.jit
def wg_fold_max(a, b):
    """The larger, or a NaN of either."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def wg_fold_min(a, b):
    """The smaller, or a NaN of either."""
    return tl.where((a < b) | (a != a), a, b)
