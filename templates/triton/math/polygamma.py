# needs: any, as_int, digamma, pow_f64, round, two_to, zeta_sum
# In float64. (-1)^(n + 1) n! zeta(n + 1, x), Hurwitz's zeta function (Abramowitz & Stegun 6.4.10). Below 0, sum
# (x + k)^-s over all integers k, with f = x - round(x) in place of x, and subtract the terms before k = 0, which are a
# zeta function of 1 - x. Infinite at 0 and negative integers. c is a power of two near e / n, so that neither n! c^s
# nor the powers it is multiplied by overflow early.
@triton.jit
def wg_polygamma(order, of):
    """The derivative of digamma of order `order`; NaN if that is no integer from 0 to 4096."""
    n, x = tl.broadcast(order.to(tl.float64), of.to(tl.float64))
    valid = (n >= 1) & (n <= 4096) & (n == wg_round(n))
    itself = n == 0
    odd = valid & (wg_round(n * 0.5) * 2.0 != n)
    n = tl.where(valid, n, 1.0)
    s = n + 1.0
    c = wg_two_to(1023 - (wg_as_int(n * 0.36787944117144233 + 1.0) >> 52))
    factorial = c * c
    i = tl.full((), 2.0, tl.float64)
    while wg_any(i <= n):
        factorial = tl.where(i <= n, factorial * (i * c), factorial)
        i = i + 1.0
    minus = x < 0
    f = tl.where(minus, x - wg_round(x), x)
    r = wg_zeta_sum(s, tl.where(minus, 1.0 + f, tl.abs(x)), c)
    if wg_any(minus):
        before = wg_zeta_sum(s, tl.where(minus, 1.0 - f, 1.0), c) - wg_zeta_sum(s, tl.where(minus, 1.0 - x, 1.0), c)
        pole = wg_pow_f64(f * c, 0.0 - s) + r
        r = tl.where(minus, tl.where(odd, pole + before, pole - before), r)
    r = tl.where(valid, factorial * tl.where(odd, r, r * -1.0), float("nan"))
    if wg_any(itself):
        r = tl.where(itself, wg_digamma(x), r)
    return r.to(of.dtype)
