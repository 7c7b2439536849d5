# needs:
@triton.jit
def wg_fold_sum(a, b):
    return a + b
