# needs: exp, reciprocal
# 1 / (1 + e^-x) through e^-|x|, which never overflows: relative accuracy at both ends. The rounding error of 1 + e
# (Fast2Sum) corrects the reciprocal.
@triton.jit
def wg_logistic(x):
    e = wg_exp(0.0 - tl.abs(x))
    s = 1.0 + e
    q = wg_reciprocal(s)
    q = q - (q * q) * (e - (s - 1.0))
    return tl.where(x > 0, q, e * q)
