# needs: any, trunc
# In float64. Gegenbauer's polynomial C^a of degree n (truncated): n C(n) = 2 (n + a - 1) x C(n - 1) - (n + 2 a - 2)
# C(n - 2) (22.7.3 of Abramowitz & Stegun). With a = 1/2 it is Legendre's. Infinite values end the loop. 0 for n < 0,
# NaN for n above a million.
@triton.jit
def wg_gegenbauer(a_of, n_of, of):
    n, x = tl.broadcast(n_of.to(tl.float64), of.to(tl.float64))
    a = a_of.to(tl.float64)
    valid = (n == n) & (n <= 1e6)
    n = tl.where(valid, wg_trunc(n), -1.0)
    k = tl.full((), 1.0, tl.float64)
    before = tl.full(x.shape, 1.0, tl.float64)
    r = 2 * a * x + before * 0.0
    while wg_any((k < n) & (tl.abs(r) < float("inf"))):
        step = (k < n) & (tl.abs(r) < float("inf"))
        k = k + 1.0
        next = (2 * (k + a - 1) * x * r - (k + 2 * a - 2) * before) / k
        before = tl.where(step, r, before)
        r = tl.where(step, next, r)
    r = tl.where(n < 1, tl.where(n < 0, 0.0, 1.0), r)
    return tl.where(valid, r, float("nan")).to(of.dtype)
