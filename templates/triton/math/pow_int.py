# needs:
@triton.jit
def wg_pow_int(x, y):
    """Wrap-around power by squaring. A negative exponent gives the truncated reciprocal: 0 but for 1 and -1."""
    r = tl.full((), 1, x.dtype) + (x & 0) + (y & 0)
    base = x + (y & 0)
    e = y + (x & 0)
    for _ in range(x.dtype.primitive_bitwidth):
        r = tl.where((e & 1) != 0, r * base, r)
        base = base * base
        e = e >> 1
    if x.dtype.is_int_signed():
        unit = tl.where((y & 1) != 0, x, 1)
        unit = tl.where((x == 1) | (x == -1), unit, 0)
        r = tl.where(y < 0, unit, r)
    return r
