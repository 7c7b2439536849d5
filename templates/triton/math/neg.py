# needs:
# Triton 3.6 makes 0 - x of -x, which loses the sign of -0.0.
@triton.jit
def wg_neg(x):
    if x.dtype.is_floating():
        r = x * -1.0
    else:
        r = 0 - x
    return r
