# needs: exp, log1p
@triton.jit
def wg_softplus(x):
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|)."""
    e = wg_log1p(wg_exp(0.0 - tl.abs(x)))
    return tl.where(x > 0, x + e, e)
