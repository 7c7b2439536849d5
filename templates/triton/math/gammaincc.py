# needs: gamma_ratio
# In float64. 1 where x is 0 or a is infinite, 0 where a is 0 or x is infinite, NaN where both are 0 or both
# infinite, and for negative numbers.
@triton.jit
def wg_gammaincc(a_of, of):
    """The regularised upper incomplete gamma function."""
    a, x = tl.broadcast(a_of.to(tl.float64), of.to(tl.float64))
    valid = (a >= 0.0) & (x >= 0.0) & ((a > 0.0) | (x > 0.0)) & ((a < float("inf")) | (x < float("inf")))
    first = (x == 0.0) | (a == float("inf"))
    second = (a == 0.0) | (x == float("inf"))
    inside = valid & ((first | second) == 0)
    r = wg_gamma_ratio(tl.where(inside, a, 1.0), tl.where(inside, x, 1.0), True)
    r = tl.where(first, 1.0, tl.where(second, 0.0, r))
    return tl.where(valid, r, float("nan")).to(of.dtype)
