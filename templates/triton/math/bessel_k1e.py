# needs: bessel_k1_far, bessel_k1_near, exp, sqrt
# The Bessel function K1 times e^x: its series up to 1 (Abramowitz & Stegun 9.6.11), then a polynomial of 1 / x over
# sqrt(x), our own Chebyshev fit (2^-58).
@triton.jit
def wg_bessel_k1e(of):
    x = of.to(tl.float64)
    a = tl.where((x > 0.0) & (x <= 1.0), x, 1.0)
    near = wg_bessel_k1_near(a) * wg_exp(a)
    b = tl.where(x > 1.0, x, 1.0)
    far = wg_bessel_k1_far(b) / wg_sqrt(b)
    r = tl.where(x <= 1.0, near, far)
    return tl.where(x > 0.0, r, tl.where(x == 0.0, float("inf"), float("nan"))).to(of.dtype)
