# needs: copysign, div, log1p, sqrt
# log1p(a + a^2 / (1 + sqrt(1 + a^2))); for large a, log(a) + log 2.
@triton.jit
def wg_asinh(x):
    a = tl.abs(x)
    if x.dtype == tl.float64:
        large = a > 18014398509481984.0
    else:
        large = a > 33554432.0
    b = tl.where(large, 0.0, a)
    s = b * b
    r = wg_log1p(tl.where(large, a, a + wg_div(s, 1.0 + wg_sqrt(1.0 + s))))
    r = tl.where(large, r + 0.6931471805599453, r)
    return wg_copysign(r, x)
