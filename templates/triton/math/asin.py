# needs: asin_poly, copysign, half_pi_rest, sqrt
# |x| <= 1/2 by the polynomial; beyond, pi/2 - 2 asin(s) with s = sqrt((1 - |x|) / 2).
@triton.jit
def wg_asin(x):
    a = tl.abs(x)
    big = a > 0.5
    z = tl.where(big, (1.0 - a) * 0.5, a * a)
    s = tl.where(big, wg_sqrt(z), a)
    r = s + s * wg_asin_poly(z)
    r = tl.where(big, 1.5707963267948966 - (2.0 * r - wg_half_pi_rest(x.dtype)), r)
    return wg_copysign(r, x)
