# needs: log_ends, log_split, log_tail
# e ln 2 + log(1 + f), with ln 2 in two parts (Cody & Waite), the first short enough that e times it is exact. Triton's
# log loses all bits near 1 in float32 and has no float64.
@triton.jit
def wg_log(x):
    f, e = wg_log_split(x)
    r = e * 0.693359375 + (f + (e * -2.1219444005469058e-4 + wg_log_tail(f)))
    return wg_log_ends(x, r)
