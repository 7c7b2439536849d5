# needs: copysign, fmod
@triton.jit
def wg_mod(x, y):
    """Python's remainder: the sign of y; of integers 0 for y == 0."""
    r = wg_fmod(x, y)
    moved = tl.where((r < 0) != (y < 0), r + y, r)
    if x.dtype.is_floating():
        zero = wg_copysign(r, y)
    else:
        zero = r
    return tl.where(r == 0, zero, moved)
