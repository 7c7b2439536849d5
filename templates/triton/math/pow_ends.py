# needs: copysign, trunc
@triton.jit
def wg_pow_ends(x, y, r):
    """x^y from r = |x|^y: signs, and the special values of C99 (F.9.4.4)."""
    a = tl.abs(x)
    b = tl.abs(y)
    half = y * 0.5
    whole = wg_trunc(y) == y
    odd = whole & (wg_trunc(half) != half)
    edge = tl.where((a < 1) != (y < 0), 0.0, float("inf")).to(x.dtype)  # x = 0 or infinite, or y infinite
    r = tl.where((a == 0) | (a == float("inf")) | (b == float("inf")), edge, r)
    r = tl.where((x != x) | (y != y), x + y, r)
    r = tl.where((x < 0) & (a < float("inf")) & (b < float("inf")) & ~whole, float("nan"), r)
    r = tl.where(odd, wg_copysign(r, x), r)
    return tl.where((y == 0) | (x == 1) | ((x == -1) & (b == float("inf"))), 1.0, r)
