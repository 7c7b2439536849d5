# needs: copysign, div, log1p
@triton.jit
def wg_atanh(x):
    """log1p(2 a / (1 - a)) / 2 of a = |x|."""
    a = tl.abs(x)
    r = 0.5 * wg_log1p(wg_div(a + a, 1.0 - a))
    return wg_copysign(tl.where(a <= 1, r, float("nan")), x)
