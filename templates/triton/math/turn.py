# needs: nearest
# u reduced exactly to r in [-pi/4, pi/4] and a quadrant; our own minimax fits of sine and cosine there (2^-28 and 2^-33
# in float32, 2^-68 and 2^-64 in float64).
@triton.jit
def wg_turn(u):
    """sin and cos of 2 pi u for |u| < 2^20."""
    n, q = wg_nearest(4.0 * u)
    r = (4.0 * u - n) * 1.5707963267948966
    z = r * r
    if u.dtype == tl.float64:
        p = z * -7.57869443253626e-13 + 1.60583665709155e-10
        p = p * z - 2.5052104911256367e-08
        p = p * z + 2.7557319214189618e-06
        p = p * z - 0.00019841269841255066
        p = p * z + 0.008333333333333323
        p = p * z - 0.16666666666666666
        t = z * -1.135956640309983e-11 + 2.0875721776699913e-09
        t = t * z - 2.75573143419398e-07
        t = t * z + 2.480158728944865e-05
        t = t * z - 0.0013888888888874075
        t = t * z + 0.0416666666666666
        h = z * 0.5
        c = 1.0 - h
        cos = c + (((1.0 - c) - h) + z * z * t)
    else:
        p = z * -0.00019516972 + 0.008332176
        p = p * z - 0.16666655
        t = z * 2.443808e-05 - 0.0013887364
        t = t * z + 0.041666646
        cos = 1.0 - (z * 0.5 - z * z * t)
    sin = r + r * (z * p)
    odd = (q & 1) != 0
    s = tl.where(odd, cos, sin)
    c = tl.where(odd, sin, cos)
    return tl.where((q & 2) != 0, 0.0 - s, s), tl.where(((q + 1) & 2) != 0, 0.0 - c, c)
