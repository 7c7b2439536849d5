# needs: as_int
@triton.jit
def wg_signbit(x):
    if x.dtype.is_floating():
        r = wg_as_int(x) < 0
    else:
        r = x < 0
    return r
