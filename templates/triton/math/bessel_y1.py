# needs: bessel_j1_near, cos, hankel1, log, sin
# The Bessel function Y1: 2/pi (log(x) J1(x) - 1 / x) + x R(x^2) below 8 (Abramowitz & Stegun 9.1.11), R our own
# Chebyshev fit (2^-60). Errors are relative to the larger of 1 and 1 / x below 8, and to sqrt(2 / (pi x)) beyond.
@triton.jit
def wg_bessel_y1(of):
    x = of.to(tl.float64)
    a = tl.where((x > 0.0) & (x < 8.0), x, 1.0)
    t = a * a * 0.03125 - 1.0
    p = t * 8.760001143977853e-13 - 2.499531546171249e-11
    p = p * t + 6.169688029066965e-10
    p = p * t - 1.3153147367094951e-08
    p = p * t + 2.3804930420514178e-07
    p = p * t - 3.601000022590458e-06
    p = p * t + 4.467433012646365e-05
    p = p * t - 0.0004438173434420147
    p = p * t + 0.0034224907399188495
    p = p * t - 0.01962875683311711
    p = p * t + 0.07854786922242532
    p = p * t - 0.19639839859930203
    p = p * t + 0.23507209206669755
    p = p * t + 0.02336757172099348
    p = p * t - 0.24337743079193114
    p = p * t + 0.07075985882118005
    near = (wg_log(a) * wg_bessel_j1_near(a) - 1.0 / a) * 0.6366197723675814 + a * p
    b = tl.where(x < 8.0, 8.0, x)
    s = wg_sin(b)
    c = wg_cos(b)
    r = tl.where(x < 8.0, near, wg_hankel1(b, 0.0 - (s + c), c - s))
    r = tl.where(x == float("inf"), 0.0, r)
    return tl.where(x > 0.0, r, tl.where(x == 0.0, float("-inf"), float("nan"))).to(of.dtype)
