# needs: div
# float64: by s = f / (2 + f) and log(1 + f) = 2 atanh(s), the shape of fdlibm's e_log.c. The polynomials are our own
# minimax fits (2^-30 and 2^-58 of log).
@triton.jit
def wg_log_tail(f):
    """log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    if f.dtype == tl.float64:
        s = wg_div(f, 2.0 + f)
        z = s * s
        h = f * f * 0.5
        p = z * 0.14618325837258095 + 0.15331560274000533
        p = p * z + 0.18182894322986437
        p = p * z + 0.22222211057680924
        p = p * z + 0.28571428626492085
        p = p * z + 0.3999999999989824
        p = p * z + 0.666666666666667
        r = s * (h + z * p) - h
    else:
        p = f * 0.06916137 - 0.117901474
        p = p * f + 0.118727855
        p = p * f - 0.123842746
        p = p * f + 0.14218678
        p = p * f - 0.16669255
        p = p * f + 0.20002225
        p = p * f - 0.24999987
        p = p * f + 0.3333331
        z = f * f
        r = z * (f * p) - z * 0.5
    return r
