# needs: bessel_i1_far, bessel_i1_near, exp, sqrt
# The Bessel function I1 times e^-|x|: its Taylor series below 8, then a polynomial of 8 / |x| over sqrt(|x|), our own
# Chebyshev fit (2^-58).
@triton.jit
def wg_bessel_i1e(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    n = tl.where(a < 8.0, a, 0.0)
    near = wg_exp(0.0 - n) * n * wg_bessel_i1_near(n)
    b = tl.where(a < 8.0, 8.0, a)
    r = tl.where(a < 8.0, near, wg_bessel_i1_far(b) / wg_sqrt(b))
    return tl.where(x < 0.0, 0.0 - r, r).to(of.dtype)
