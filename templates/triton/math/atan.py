# needs: atan_ratio, copysign
@triton.jit
def wg_atan(x):
    return wg_copysign(wg_atan_ratio(tl.abs(x), tl.full((), 1.0, x.dtype)), x)
