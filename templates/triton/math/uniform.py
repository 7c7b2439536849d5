# needs: philox, unit
@triton.jit
def wg_uniform(index, offset, key, C: tl.constexpr):
    """[0, 1), from words 0 and 1 of the counter."""
    a, b, _c, _d = wg_philox(index, offset, key)
    return wg_unit(a, b, C)
