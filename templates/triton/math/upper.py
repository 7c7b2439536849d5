# needs: as_float, as_int
@triton.jit
def wg_upper(x):
    """The upper 26 bits of a float64's significand: products of two such are exact."""
    return wg_as_float((wg_as_int(x) >> 27) << 27)
