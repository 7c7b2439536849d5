# needs:
@triton.jit
def wg_isfinite(x):
    if x.dtype.is_floating():
        r = tl.abs(x) < float("inf")
    else:
        r = x == x
    return r
