# needs: any, trunc
# In float64. Hermite's polynomial of degree n (truncated): H(n) = c (x H(n - 1) - (n - 1) H(n - 2)) (22.7.13 and
# 22.7.14 of Abramowitz & Stegun); c is 2 for the physicists' and 1 for the probabilists'. Infinite values end the
# loop. 0 for n < 0, NaN for n above a million.
@triton.jit
def wg_hermite(c_of, n_of, of):
    n, x = tl.broadcast(n_of.to(tl.float64), of.to(tl.float64))
    c = c_of.to(tl.float64)
    valid = (n == n) & (n <= 1e6)
    n = tl.where(valid, wg_trunc(n), -1.0)
    k = tl.full((), 1.0, tl.float64)
    before = tl.full(x.shape, 1.0, tl.float64)
    r = c * x + before * 0.0
    while wg_any((k < n) & (tl.abs(r) < float("inf"))):
        step = (k < n) & (tl.abs(r) < float("inf"))
        k = k + 1.0
        next = c * (x * r - (k - 1) * before)
        before = tl.where(step, r, before)
        r = tl.where(step, next, r)
    r = tl.where(n < 1, tl.where(n < 0, 0.0, 1.0), r)
    return tl.where(valid, r, float("nan")).to(of.dtype)
