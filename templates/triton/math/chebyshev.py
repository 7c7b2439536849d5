# needs: any, trunc
# In float64. The polynomial of degree n (truncated) with p(1) = slope x - shift and p(n) = 2 x p(n - 1) - p(n - 2):
# Chebyshev's of the four kinds (22.7.4 of Abramowitz & Stegun). Infinite values end the loop. 0 for n < 0, NaN for n
# above a million.
@triton.jit
def wg_chebyshev(slope, shift_of, n_of, of):
    n, x = tl.broadcast(n_of.to(tl.float64), of.to(tl.float64))
    shift = shift_of.to(tl.float64)
    valid = (n == n) & (n <= 1e6)
    n = tl.where(valid, wg_trunc(n), -1.0)
    k = tl.full((), 1.0, tl.float64)
    before = tl.full(x.shape, 1.0, tl.float64)
    r = slope * x - shift + before * 0.0
    while wg_any((k < n) & (tl.abs(r) < float("inf"))):
        step = (k < n) & (tl.abs(r) < float("inf"))
        k = k + 1.0
        next = 2 * x * r - before
        before = tl.where(step, r, before)
        r = tl.where(step, next, r)
    r = tl.where(n < 1, tl.where(n < 0, 0.0, 1.0), r)
    return tl.where(valid, r, float("nan")).to(of.dtype)
