# needs: erf_small, erfc_ratio, exp, upper
# e^(x^2) erfc(x): erfc below 1/2, the polynomial of erfc up to 30 (10 in float), then the asymptotic series
# (Abramowitz & Stegun 7.1.23). Below 0 it is 2 e^(x^2) - erfcx(-x); with h the upper half of the bits of x, x^2 = h^2
# + (x - h)(x + h), and h^2 is exact.
@triton.jit
def wg_erfcx(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    h = wg_upper(a)
    e = wg_exp(h * h) * wg_exp((a - h) * (a + h))
    b = tl.where(a > 30.0, 30.0, a)
    y = 1.0 / a
    z = y * y
    t = z * (z * (z * (z * (z * (z * 162.421875 - 29.53125) + 6.5625) - 1.875) + 0.75) - 0.5) + 1.0
    far = t * y * 0.5641895835477563
    r = tl.where(
        a < 0.5, e * (1.0 - wg_erf_small(tl.where(a < 0.5, a, 0.0))), tl.where(a < 30.0, wg_erfc_ratio(b), far)
    )
    e = tl.where(a > 27.0, float("inf"), e)
    return tl.where(x < 0.0, 2.0 * e - r, r).to(of.dtype)
