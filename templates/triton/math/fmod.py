# needs: quotient
# float32 in float64: the remainder is the same, and subnormal numbers are not flushed to 0.
@triton.jit
def wg_fmod(x, y):
    """C's fmod, exact, with the sign of x; of integers 0 for y == 0."""
    if x.dtype.is_floating():
        r = libdevice.fmod(x.to(tl.float64), y.to(tl.float64)).to(x.dtype)
    else:
        r = tl.where(y == 0, 0, x - wg_quotient(x, y) * y)
    return r
