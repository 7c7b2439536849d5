# needs:
@triton.jit
def wg_as_float(i):
    """The floating-point numbers that have these bits."""
    if i.dtype == tl.int64:
        r = i.to(tl.float64, bitcast=True)
    else:
        r = i.to(tl.float32, bitcast=True)
    return r
