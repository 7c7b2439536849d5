# needs: bessel_k0_far, bessel_k0_near, exp, sqrt
# The Bessel function K0: its series up to 1 (Abramowitz & Stegun 9.6.13), then e^-x times a polynomial of 1 / x over
# sqrt(x), our own Chebyshev fit (2^-58).
@triton.jit
def wg_bessel_k0(of):
    x = of.to(tl.float64)
    a = tl.where((x > 0.0) & (x <= 1.0), x, 1.0)
    near = wg_bessel_k0_near(a)
    b = tl.where(x > 1.0, x, 1.0)
    far = wg_exp(0.0 - b) * wg_bessel_k0_far(b) / wg_sqrt(b)
    r = tl.where(x <= 1.0, near, far)
    return tl.where(x > 0.0, r, tl.where(x == 0.0, float("inf"), float("nan"))).to(of.dtype)
