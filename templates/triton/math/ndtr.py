# needs: erfc, erfcx, exp, upper
# The normal distribution: erfc(-x / sqrt(2)) / 2, and below -1 erfcx(-x / sqrt(2)) e^(-x^2 / 2) / 2, in which x is
# split as in erfcx.
@triton.jit
def wg_ndtr(of):
    x = of.to(tl.float64)
    b = tl.where(x < -1.0, x, -1.0)
    h = wg_upper(b)
    t = wg_erfcx(b * -0.7071067811865476) * 0.5
    t = t * wg_exp(h * h * -0.5) * wg_exp((b - h) * (b + h) * -0.5)
    t = tl.where(b < -40.0, 0.0, t)
    return tl.where(x < -1.0, t, wg_erfc(x * -0.7071067811865476) * 0.5).to(of.dtype)
