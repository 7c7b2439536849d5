# needs: philox
@triton.jit
def wg_bits(index, offset, key):
    """Word 0 of the counter, 32 bits, as int64."""
    a, _b, _c, _d = wg_philox(index, offset, key)
    return a.to(tl.int64)
