# needs: as_int, atan_ratio, copysign, half_pi_rest
@triton.jit
def wg_atan2(y, x):
    """The angle of the point (x, y), with C99's values at zeros and infinities (F.9.1.4)."""
    r = wg_atan_ratio(tl.abs(y), tl.abs(x))
    r = tl.where(wg_as_int(x) < 0, 3.141592653589793 - (r - 2.0 * wg_half_pi_rest(x.dtype)), r)
    return wg_copysign(r, y)
