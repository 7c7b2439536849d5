# needs: div, half_pi_rest
# One division (reductions at tan(pi/8) and 1, as in Cephes): with a the larger and b the smaller, t = b / a or
# (b - a) / (b + a), atan t = t + t^3 P(t^2), P our own minimax fits (2^-30 and 2^-64).
@triton.jit
def wg_atan_ratio(y, x):
    """atan(y / x) for y, x >= 0."""
    swap = y > x
    a = tl.where(swap, y, x)
    b = tl.where(swap, x, y)
    if x.dtype == tl.float64:
        huge = a > 4.49423283715579e307
    else:
        huge = a > 8.507059173023462e37
    a = tl.where(huge, a * 0.25, a)
    b = tl.where(huge, b * 0.25, b)
    b = tl.where(a == float("inf"), tl.where(b == float("inf"), 1.0, b * 0.0), b)
    a = tl.where((a == float("inf")) | (a == 0), 1.0, a)
    wide = b > a * 0.41421356237309503
    t = wg_div(tl.where(wide, b - a, b), tl.where(wide, b + a, a))
    z = t * t
    if x.dtype == tl.float64:
        p = z * 0.015239251397664915 - 0.033520712627175465
        p = p * z + 0.04505680620327858
        p = p * z - 0.05218971219473785
        p = p * z + 0.05877117979397143
        p = p * z - 0.06666237618157314
        p = p * z + 0.07692283584595297
        p = p * z - 0.09090908186382939
        p = p * z + 0.11111111089543742
        p = p * z - 0.1428571428541484
        p = p * z + 0.19999999999997947
        p = p * z - 0.33333333333333326
    else:
        p = z * -0.060825013 + 0.1059565
        p = p * z - 0.14243805
        p = p * z + 0.19998488
        p = p * z - 0.33333316
    low = wg_half_pi_rest(x.dtype)
    p = t * (z * p) + tl.where(wide, low * 0.5, 0.0)
    angle = tl.where(wide, tl.full((), 0.7853981633974483, x.dtype), 0.0) + (t + p)
    return tl.where(swap, 1.5707963267948966 - (angle - low), angle)
