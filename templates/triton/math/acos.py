# needs: asin_poly, half_pi_rest, sqrt
# pi/2 - asin(x) for |x| <= 1/2; beyond, 2 asin(s) or pi - 2 asin(s) with s = sqrt((1 - |x|) / 2).
@triton.jit
def wg_acos(x):
    a = tl.abs(x)
    big = a > 0.5
    z = tl.where(big, (1.0 - a) * 0.5, a * a)
    s = tl.where(big, wg_sqrt(z), x)
    p = s * wg_asin_poly(z)
    r = s + p
    low = wg_half_pi_rest(x.dtype)
    far = tl.where(x < 0, 3.141592653589793 - 2.0 * (r - low), 2.0 * r)
    return tl.where(big, far, 1.5707963267948966 - (s + (p - low)))
