# needs:
@triton.jit
def wg_log_ends(x, r):
    """Return r, the logarithm of x to any base if 0 < x < inf; else -inf for 0, inf for inf, NaN for x < 0 and NaN."""
    r = tl.where(x < float("inf"), r, x)
    r = tl.where(x > 0, r, float("nan"))
    return tl.where(x == 0, -float("inf"), r)
