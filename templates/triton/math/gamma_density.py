# needs: gamma_factor
# In float64. NaN for negative numbers; where x is 0, 0 for a > 1, 1 for a = 1, infinite for a < 1, NaN for a = 0. 0
# where x is infinite or a is 0.
@triton.jit
def wg_gamma_density(a_of, of):
    """x^(a - 1) e^-x / gamma(a), the density of the gamma distribution of shape a."""
    a, x = tl.broadcast(a_of.to(tl.float64), of.to(tl.float64))
    valid = (a >= 0.0) & (x >= 0.0) & ((a > 0.0) | (x > 0.0)) & ((a < float("inf")) | (x < float("inf")))
    inside = valid & (a > 0.0) & (x > 0.0) & (a < float("inf")) & (x < float("inf"))
    r = wg_gamma_factor(tl.where(inside, a, 1.0), tl.where(inside, x, 1.0), 1.0)
    r = tl.where(inside, r, 0.0)
    r = tl.where((x == 0.0) & (a <= 1.0), tl.where(a == 1.0, 1.0, float("inf")), r)
    return tl.where(valid, r, float("nan")).to(of.dtype)
