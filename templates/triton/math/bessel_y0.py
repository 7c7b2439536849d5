# needs: bessel_j0_near, cos, hankel0, log, sin
# The Bessel function Y0: 2/pi log(x) J0(x) + R(x^2) below 8 (Abramowitz & Stegun 9.1.13), R our own Chebyshev fit
# (2^-60). Errors are relative to the larger of 1 and log(x) below 8, and to sqrt(2 / (pi x)) beyond.
@triton.jit
def wg_bessel_y0(of):
    x = of.to(tl.float64)
    a = tl.where((x > 0.0) & (x < 8.0), x, 1.0)
    t = a * a * 0.03125 - 1.0
    p = t * -8.840112096073101e-13 + 2.6926938054524057e-11
    p = p * t - 7.13046146536789e-10
    p = p * t + 1.6390875014077404e-08
    p = p * t - 3.2185078445935923e-07
    p = p * t + 5.3213188103997145e-06
    p = p * t - 7.279541882454115e-05
    p = p * t + 0.000806158605961636
    p = p * t - 0.00702574105727097
    p = p * t + 0.046367047681375125
    p = p * t - 0.21895747096171628
    p = p * t + 0.6721770783431679
    p = p * t - 1.0775477338215995
    p = p * t + 0.14412632369302475
    p = p * t + 1.6470964788745466
    p = p * t - 0.8284358903604587
    p = p * t - 0.382250654459425
    near = wg_log(a) * 0.6366197723675814 * wg_bessel_j0_near(a) + p
    b = tl.where(x < 8.0, 8.0, x)
    s = wg_sin(b)
    c = wg_cos(b)
    r = tl.where(x < 8.0, near, wg_hankel0(b, s - c, 0.0 - (c + s)))
    r = tl.where(x == float("inf"), 0.0, r)
    return tl.where(x > 0.0, r, tl.where(x == 0.0, float("-inf"), float("nan"))).to(of.dtype)
