# needs:
@triton.jit
def wg_rshift(x, y):
    """x >> y, arithmetic; a shift as wide as the number, or a negative one, leaves only copies of the sign, or 0."""
    fits = (y >= 0) & (y < x.dtype.primitive_bitwidth)
    r = x >> tl.where(fits, y, x.dtype.primitive_bitwidth - 1)
    return tl.where(fits, r, r >> 1)
