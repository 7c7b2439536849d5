# needs: lshift
@triton.jit
def wg_shift_left(x, y):
    """x << y by any number of places."""
    return wg_lshift(x, y)
