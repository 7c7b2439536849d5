# needs: any, as_int, digamma, hurwitz, round, two_to
# In float64. (-1)^(n + 1) n! zeta(n + 1, x), Hurwitz's zeta function (Abramowitz & Stegun 6.4.10). Infinite at 0 and
# negative integers. c is a power of two near e / n, so that neither n! c^s nor the powers it is multiplied by overflow
# early.
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
    r = wg_hurwitz(s, valid & (wg_round(n * 0.5) * 2.0 == n), x, c)
    r = tl.where(valid, factorial * tl.where(odd, r, r * -1.0), float("nan"))
    if wg_any(itself):
        r = tl.where(itself, wg_digamma(x), r)
    return r.to(of.dtype)
