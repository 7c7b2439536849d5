# needs: bessel_i1_far, bessel_i1_near, exp, sqrt
# The Bessel function I1: its Taylor series below 8, then e^|x| times a polynomial of 8 / |x| over sqrt(|x|), our own
# Chebyshev fit (2^-58). The exponential is split, so that it overflows no earlier than the product.
@triton.jit
def wg_bessel_i1(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    n = tl.where(a < 8.0, a, 0.0)
    near = n * wg_bessel_i1_near(n)
    b = tl.where(a < 8.0, 8.0, a)
    e = tl.where(b < 80.0, b, 80.0)
    r = tl.where(a < 8.0, near, wg_exp(e) * wg_bessel_i1_far(b) / wg_sqrt(b) * wg_exp(b - e))
    r = tl.where(a == float("inf"), float("inf"), r)
    return tl.where(x < 0.0, 0.0 - r, r).to(of.dtype)
