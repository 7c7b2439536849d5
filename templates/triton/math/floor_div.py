# needs: copysign, div, fmod, quotient
@triton.jit
def wg_floor_div(x, y):
    """Python's x // y as in NumPy and PyTorch; a float / 0 is a division, an integer // 0 gives 0."""
    if x.dtype.is_floating():
        r = wg_fmod(x, y)
        plain = wg_div(x, y)
        q = wg_div(x - r, y)  # an integer, or nearly one
        q = tl.where((r != 0) & ((r < 0) != (y < 0)), q - 1.0, q)
        n = tl.floor(q)
        n = tl.where(q - n > 0.5, n + 1.0, n)
        n = tl.where(q == 0, wg_copysign(q, plain), n)
        n = tl.where(y == 0, plain, n)
    else:
        n = wg_quotient(x, y)
        r = x - n * y
        n = tl.where((y != 0) & (r != 0) & ((r < 0) != (y < 0)), n - 1, n)
    return n
