# needs: bessel_j0_near, cos, hankel0, sin
# The Bessel function J0. Errors are relative to sqrt(2 / (pi x)) from 8 on.
@triton.jit
def wg_bessel_j0(of):
    x = of.to(tl.float64)
    a = tl.abs(x)
    near = wg_bessel_j0_near(tl.where(a < 8.0, a, 0.0))
    b = tl.where(a < 8.0, 8.0, a)
    s = wg_sin(b)
    c = wg_cos(b)
    r = tl.where(a < 8.0, near, wg_hankel0(b, c + s, s - c))
    return tl.where(a == float("inf"), 0.0, r).to(of.dtype)
