# needs: floor, hurwitz
# In float64. Infinite at s = 1 and where x is 0 or a negative integer, NaN for s < 1, and for negative x if s is
# no integer.
@triton.jit
def wg_zeta(order, of):
    """Hurwitz's zeta function zeta(order, of)."""
    s, x = tl.broadcast(order.to(tl.float64), of.to(tl.float64))
    valid = (s > 1) & ((x > 0) | (s == wg_floor(s)))
    pole = (s == 1) | ((s > 1) & (x <= 0) & (x == wg_floor(x)))
    odd = wg_floor(s * 0.5) * 2.0 != s
    ordinary = valid & (x == x) & (pole == 0)
    r = wg_hurwitz(tl.where(valid, s, 2.0), odd, tl.where(ordinary, x, 1.0), tl.full((), 1.0, tl.float64))
    r = tl.where(pole, float("inf"), tl.where(valid, r, float("nan")))
    return tl.where((x == x) & (s == s), r, float("nan")).to(of.dtype)
