# needs: pow_f32, pow_f64, pow_int
@triton.jit
def wg_pow(x, y):
    if x.dtype == tl.float64:
        r = wg_pow_f64(x, y)
    elif x.dtype == tl.float32:
        r = wg_pow_f32(x, y)
    else:
        r = wg_pow_int(x, y)
    return r
