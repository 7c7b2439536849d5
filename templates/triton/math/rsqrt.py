# needs: reciprocal, sqrt
@triton.jit
def wg_rsqrt(x):
    return wg_reciprocal(wg_sqrt(x))
