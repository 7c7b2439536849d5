# needs:
@triton.jit
def wg_as_int(x):
    """The bits of floating-point numbers, as signed integers of their width."""
    if x.dtype == tl.float64:
        r = x.to(tl.int64, bitcast=True)
    else:
        r = x.to(tl.int32, bitcast=True)
    return r
