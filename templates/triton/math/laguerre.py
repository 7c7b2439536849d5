# needs: any, trunc
# In float64. Laguerre's polynomial L^a of degree n (truncated): n L(n) = (2 n - 1 + a - x) L(n - 1) - (n - 1 + a) L(n
# - 2) (22.7.12 of Abramowitz & Stegun). Infinite values end the loop. 0 for n < 0, NaN for n above a million.
@triton.jit
def wg_laguerre(a_of, n_of, of):
    n, x = tl.broadcast(n_of.to(tl.float64), of.to(tl.float64))
    a = a_of.to(tl.float64)
    valid = (n == n) & (n <= 1e6)
    n = tl.where(valid, wg_trunc(n), -1.0)
    k = tl.full((), 1.0, tl.float64)
    before = tl.full(x.shape, 1.0, tl.float64)
    r = 1 + a - x + before * 0.0
    while wg_any((k < n) & (tl.abs(r) < float("inf"))):
        step = (k < n) & (tl.abs(r) < float("inf"))
        k = k + 1.0
        next = ((2 * k - 1 + a - x) * r - (k - 1 + a) * before) / k
        before = tl.where(step, r, before)
        r = tl.where(step, next, r)
    r = tl.where(n < 1, tl.where(n < 0, 0.0, 1.0), r)
    return tl.where(valid, r, float("nan")).to(of.dtype)
