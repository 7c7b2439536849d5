# needs:
@triton.jit
def wg_floor(x):
    if x.dtype.is_floating():
        r = tl.floor(x)
    else:
        r = x
    return r
