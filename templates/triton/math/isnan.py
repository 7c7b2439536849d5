# needs:
@triton.jit
def wg_isnan(x):
    return x != x
