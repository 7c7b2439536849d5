# needs: copysign, div, exp, expm1
# float64: -t / (2 + t) with t = e^(-2|x|) - 1 in (-1, 0]. float32: below 0.55 x + x^3 P(x^2), our own minimax fit
# (2^-30); beyond, 1 - 2 e / (1 + e) with e = e^(-2|x|).
@triton.jit
def wg_tanh(x):
    a = tl.abs(x)
    if x.dtype == tl.float64:
        t = wg_expm1(-2.0 * a)
        r = wg_div(t, -2.0 - t)
    else:
        z = x * x
        p = z * -0.0062824874 + 0.02107778
        p = p * z - 0.053853866
        p = p * z + 0.13332602
        p = p * z - 0.3333332
        e = wg_exp(-2.0 * a)
        r = tl.where(a < 0.55, a + a * (z * p), 1.0 - wg_div(e + e, 1.0 + e))
    return wg_copysign(r, x)
