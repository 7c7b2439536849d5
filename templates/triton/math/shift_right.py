# needs: rshift
@triton.jit
def wg_shift_right(x, y):
    """x >> y by any number of places."""
    return wg_rshift(x, y)
