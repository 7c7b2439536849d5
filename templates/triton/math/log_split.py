# needs: as_float, as_int
@triton.jit
def wg_log_split(x):
    """Return f and e of x = 2^e (1 + f), f in [sqrt(1/2) - 1, sqrt(2) - 1], for x > 0, subnormal x included."""
    if x.dtype == tl.float64:
        tiny = x < 2.2250738585072014e-308
        i = wg_as_int(tl.where(tiny, x * 18446744073709551616.0, x))
        n = (i - 0x3FE6A09E667F3BCD) >> 52
        f = wg_as_float(i - (n << 52)) - 1.0
    else:
        tiny = x < 1.1754943508222875e-38
        i = wg_as_int(tl.where(tiny, x * 18446744073709551616.0, x))
        n = (i - 0x3F3504F3) >> 23
        f = wg_as_float(i - (n << 23)) - 1.0
    return f, tl.where(tiny, n - 64, n).to(x.dtype)
