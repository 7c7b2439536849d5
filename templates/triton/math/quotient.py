# needs:
@triton.jit
def wg_quotient(x, y):
    """C's x / y of integers, with 0 for y == 0 and a wrap-around for the most negative number / -1, both undefined."""
    none = y == 0
    if x.dtype.is_int_signed():
        minus = y == -1
        q = x // tl.where(none | minus, 1, y)
        q = tl.where(minus, 0 - x, q)
    else:
        q = x // tl.where(none, 1, y)
    return tl.where(none, 0, q)
