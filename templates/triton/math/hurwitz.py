# needs: any, pow_f64, round, zeta_sum
# Below 0, sum ((x + k) c)^-s over all integers k, with f = x - round(x) in place of x, and subtract the terms before
# k = 0, which are a zeta function of 1 - x.
@triton.jit
def wg_hurwitz(s, odd, x, c):
    """Hurwitz's zeta function in float64, the sum of ((x + k) c)^-s over k = 0, 1, ...; infinite at 0, -1, -2 ...

    For x < 0 s is an integer, which `odd` describes.
    """
    minus = x < 0
    f = tl.where(minus, x - wg_round(x), x)
    r = wg_zeta_sum(s, tl.where(minus, 1.0 + f, tl.abs(x)), c)
    if wg_any(minus):
        before = wg_zeta_sum(s, tl.where(minus, 1.0 - f, 1.0), c) - wg_zeta_sum(s, tl.where(minus, 1.0 - x, 1.0), c)
        pole = wg_pow_f64(f * c, 0.0 - s) + r
        r = tl.where(minus, tl.where(odd, pole - before, pole + before), r)
    return r
