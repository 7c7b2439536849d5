# needs: quotient
@triton.jit
def wg_div(x, y):
    """x / y, to 2 units in the last place of float32; of integers C's quotient, 0 for y == 0."""
    if x.dtype == tl.float32 or x.dtype == tl.float64:
        r = x / y
    else:
        r = wg_quotient(x, y)
    return r
