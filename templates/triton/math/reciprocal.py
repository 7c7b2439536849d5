# needs: div
@triton.jit
def wg_reciprocal(x):
    return wg_div(tl.full((), 1, x.dtype), x)
