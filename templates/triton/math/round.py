# needs:
@triton.jit
def wg_round(x):
    """To the nearest integer, halves to the even one."""
    if x.dtype.is_floating():
        r = libdevice.nearbyint(x)
    else:
        r = x
    return r
