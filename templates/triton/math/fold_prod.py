# needs:
@triton.jit
def wg_fold_prod(a, b):
    return a * b
