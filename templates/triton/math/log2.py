# needs: log_ends, log_split, log_tail
# e + log(1 + f) / ln 2, with 1 / ln 2 = 1.4375 + 0.0051950408889634.
@triton.jit
def wg_log2(x):
    f, e = wg_log_split(x)
    r = e + (f * 1.4375 + (f * 0.005195040888963407 + wg_log_tail(f) * 1.4426950408889634))
    return wg_log_ends(x, r)
