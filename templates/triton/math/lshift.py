# needs:
@triton.jit
def wg_lshift(x, y):
    """x << y; 0 when the shift is as wide as the number or negative, as in NumPy."""
    fits = (y >= 0) & (y < x.dtype.primitive_bitwidth)
    return tl.where(fits, x << tl.where(fits, y, 0), 0)
