# needs: rshift
@triton.jit
def wg_shift_right(x, y):
    """x >> y for any shift count."""
    return wg_rshift(x, y)
