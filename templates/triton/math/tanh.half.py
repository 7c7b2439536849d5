# needs: copysign, exp
# Below 1/4 the first terms of the series x - x^3 / 3 + 2 x^5 / 15 (relative error 2^-16), where 1 - e would cancel;
# beyond, (1 - e) / (1 + e) with e = e^(-2|x|).
@triton.jit
def wg_tanh(x):
    a = tl.abs(x)
    z = x * x
    e = wg_exp(-2.0 * a)
    r = tl.where(a < 0.25, a + a * (z * (z * 0.13333334 - 0.33333334)), (1.0 - e) / (1.0 + e))
    return wg_copysign(r, x)
