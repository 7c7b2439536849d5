# needs:
@triton.jit
def wg_sqrt(x):
    """The square root, correctly rounded."""
    if x.dtype == tl.float64:
        r = tl.sqrt(x)
    else:
        r = tl.sqrt_rn(x)
    return r
