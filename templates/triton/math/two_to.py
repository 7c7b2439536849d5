# needs:
@triton.jit
def wg_two_to(i):
    """2^i as float32 (of int32) or float64 (of int64), for exponents of normal numbers."""
    if i.dtype == tl.int64:
        r = ((i + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        r = ((i + 127) << 23).to(tl.float32, bitcast=True)
    return r
