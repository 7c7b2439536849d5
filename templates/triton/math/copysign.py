# needs: as_float, as_int
@triton.jit
def wg_copysign(x, y):
    """|x| with the sign of y, that of -0.0 and NaN included."""
    if x.dtype == tl.float64:
        sign = wg_as_int(y) & -0x8000000000000000
    else:
        sign = wg_as_int(y) & -0x80000000
    return wg_as_float(wg_as_int(tl.abs(x)) | sign)
