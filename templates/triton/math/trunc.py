# needs:
@triton.jit
def wg_trunc(x):
    """Towards zero; ceil keeps the sign of what becomes -0.0."""
    if x.dtype.is_floating():
        r = tl.where(x < 0, tl.ceil(x), tl.floor(x))
    else:
        r = x
    return r
