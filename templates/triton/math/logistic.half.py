# needs: exp
# 1 / (1 + e^-x) through e^-|x|, which never overflows: relative accuracy at both ends.
@triton.jit
def wg_logistic(x):
    e = wg_exp(0.0 - tl.abs(x))
    return tl.where(x > 0, 1.0, e) / (1.0 + e)
