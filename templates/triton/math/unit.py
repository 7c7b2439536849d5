# needs:
@triton.jit
def wg_unit(low, high, C: tl.constexpr):
    """A number of [0, 1): in float64 53 bits, `low` below `high`; in float32 the upper 24 bits of `low`."""
    if C == tl.float64:
        r = (((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 11).to(tl.int64).to(C) * 1.1102230246251565e-16
    else:
        r = (low >> 8).to(tl.int32).to(C) * 5.960464477539063e-08
    return r
