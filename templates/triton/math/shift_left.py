# needs: lshift
@triton.jit
def wg_shift_left(x, y):
    """x << y for any shift count."""
    return wg_lshift(x, y)
