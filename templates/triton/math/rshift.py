# needs:
@triton.jit
def wg_rshift(x, y):
    """x >> y, arithmetic; a shift as wide as the number, or a negative one, leaves only copies of the sign."""
    fits = (y >= 0) & (y < x.dtype.primitive_bitwidth)
    return x >> tl.where(fits, y, x.dtype.primitive_bitwidth - 1)
