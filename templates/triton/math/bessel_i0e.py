# needs: bessel_i0_far, bessel_i0_near, exp, sqrt
# The Bessel function I0 times e^-|x|: its Taylor series below 8, then a polynomial of 8 / |x| over sqrt(|x|), our own
# Chebyshev fit (2^-58).
@triton.jit
def wg_bessel_i0e(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    n = tl.where(a < 8.0, a, 0.0)
    near = wg_exp(0.0 - n) * wg_bessel_i0_near(n)
    b = tl.where(a < 8.0, 8.0, a)
    r = tl.where(a < 8.0, near, wg_bessel_i0_far(b) / wg_sqrt(b))
    return r.to(of.dtype)
