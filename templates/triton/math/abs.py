# needs:
@triton.jit
def wg_abs(x):
    """|x|; the most negative integer keeps its value, as in NumPy."""
    if x.dtype.is_floating():
        r = tl.abs(x)
    else:
        r = tl.where(x < 0, 0 - x, x)
    return r
