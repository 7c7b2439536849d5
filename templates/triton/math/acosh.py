# needs: log1p, sqrt
# log1p(t + sqrt(2 t + t^2)) with t = x - 1; for large x, log(x) + log 2.
@triton.jit
def wg_acosh(x):
    if x.dtype == tl.float64:
        large = x > 18014398509481984.0
    else:
        large = x > 33554432.0
    t = x - 1.0
    u = tl.where(large, 0.0, t)
    r = wg_log1p(t + wg_sqrt(2.0 * u + u * u))
    r = tl.where(large, r + 0.6931471805599453, r)
    return tl.where(x < 1, float("nan"), r)
