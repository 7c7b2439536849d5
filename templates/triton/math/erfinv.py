# needs: copysign, div, erf, erfc_positive, erfinv_guess, exp
# float64: one step of Halley's method from a guess good to 2^-20, on erf below 1/2 and on erfc beyond, where 1 - |x| is
# exact.
@triton.jit
def wg_erfinv(x):
    a = tl.abs(x)
    y = wg_erfinv_guess(a)
    if x.dtype == tl.float64:
        u = tl.where(a < 0.5, wg_erf(y) - a, (1.0 - a) - wg_erfc_positive(y))
        t = u * 0.886226925452758 * wg_exp(y * y)
        y = y - wg_div(t, 1.0 + y * t)
    end = tl.where(a == 1, float("inf"), float("nan")).to(x.dtype)
    return wg_copysign(tl.where(a < 1, y, end), x)
