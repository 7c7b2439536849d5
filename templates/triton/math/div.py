# needs: quotient
# Triton's own float32 division is an approximate one.
@triton.jit
def wg_div(x, y):
    """x / y, correctly rounded; of integers C's quotient, 0 for y == 0."""
    if x.dtype == tl.float32:
        r = tl.div_rn(x, y)
    elif x.dtype == tl.float64:
        r = x / y
    else:
        r = wg_quotient(x, y)
    return r
