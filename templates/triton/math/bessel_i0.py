# needs: bessel_i0_far, bessel_i0_near, exp, sqrt
# The Bessel function I0: its Taylor series below 8, then e^|x| times a polynomial of 8 / |x| over sqrt(|x|), our own
# Chebyshev fit (2^-58). The exponential is split, so that it overflows no earlier than the product.
@triton.jit
def wg_bessel_i0(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    n = tl.where(a < 8.0, a, 0.0)
    near = wg_bessel_i0_near(n)
    b = tl.where(a < 8.0, 8.0, a)
    e = tl.where(b < 80.0, b, 80.0)
    r = tl.where(a < 8.0, near, wg_exp(e) * wg_bessel_i0_far(b) / wg_sqrt(b) * wg_exp(b - e))
    r = tl.where(a == float("inf"), float("inf"), r)
    return r.to(of.dtype)
