# needs: bessel_j1_near, cos, hankel1, sin
# The Bessel function J1, which is odd. Errors are relative to sqrt(2 / (pi x)) from 8 on.
@triton.jit
def wg_bessel_j1(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    near = wg_bessel_j1_near(tl.where(a < 8.0, a, 0.0))
    b = tl.where(a < 8.0, 8.0, a)
    s = wg_sin(b)
    c = wg_cos(b)
    r = tl.where(a < 8.0, near, wg_hankel1(b, s - c, 0.0 - (s + c)))
    r = tl.where(a == float("inf"), 0.0, r)
    return tl.where(x < 0.0, 0.0 - r, r).to(of.dtype)
