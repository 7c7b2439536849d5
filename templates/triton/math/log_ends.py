# needs:
@triton.jit
def wg_log_ends(x, r):
    """`r`, with the values of a logarithm at 0, below 0, at infinity and at NaN."""
    r = tl.where(x < float("inf"), r, x)
    r = tl.where(x > 0, r, float("nan"))
    return tl.where(x == 0, -float("inf"), r)
