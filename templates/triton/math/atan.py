# needs: atan_ratio, copysign
@triton.jit
def wg_atan(x):
    """Return atan(x): the angle of the ratio |x| / 1, with the sign of x."""
    return wg_copysign(wg_atan_ratio(tl.abs(x), tl.full((), 1.0, x.dtype)), x)
