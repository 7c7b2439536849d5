# needs: as_float, as_int, log_ends, log_tail, two_to
# Like log, with the exponent of u = 1 + x but f = (x 2^-e) + (2^-e - 1) from x itself, so that no bit of x is lost;
# where 2^-e may be subnormal, u == x.
@triton.jit
def wg_log1p(x):
    u = 1.0 + x
    i = wg_as_int(u)
    if x.dtype == tl.float64:
        n = (i - 0x3FE6A09E667F3BCD) >> 52
        large = n > 54
        f = wg_as_float(i - (n << 52)) - 1.0
    else:
        n = (i - 0x3F3504F3) >> 23
        large = n > 25
        f = wg_as_float(i - (n << 23)) - 1.0
    scale = wg_two_to(0 - n)
    f = tl.where(large, f, x * scale + (scale - 1.0))
    e = n.to(x.dtype)
    r = e * 0.693359375 + (f + (e * -2.1219444005469058e-4 + wg_log_tail(f)))
    return tl.where(x == 0, x, wg_log_ends(u, r))
