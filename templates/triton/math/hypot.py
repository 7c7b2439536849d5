# needs:
# float32 in float64, where no square of a float overflows or loses bits that matter; float64 scaled by a power of two
# when the squares would overflow or vanish.
@triton.jit
def wg_hypot(x, y):
    """sqrt(x^2 + y^2); infinite if either is, whatever the other."""
    if x.dtype == tl.float64:
        m = tl.where(tl.abs(x) > tl.abs(y), tl.abs(x), tl.abs(y))
        large = m > 3.273390607896142e150
        small = m < 3.054936363499605e-151
        one = tl.full((), 1.0, tl.float64)
        scale = tl.where(large, 2.409919865102884e-181, tl.where(small, 4.149515568880993e180, one))
        back = tl.where(large, 4.149515568880993e180, tl.where(small, 2.409919865102884e-181, one))
        u = x * scale
        v = y * scale
        r = tl.sqrt(u * u + v * v) * back
    else:
        u = x.to(tl.float64)
        v = y.to(tl.float64)
        r = tl.sqrt(u * u + v * v).to(tl.float32)
    infinite = (tl.abs(x) == float("inf")) | (tl.abs(y) == float("inf"))
    return tl.where(infinite, float("inf"), r)
