# needs: as_int
# Adding 1.5 * 2^52 (2^23) leaves the nearest integer in the low bits of the sum: no conversion, which is undefined for
# NaN, and right whether or not a product in x is fused into the sum.
@triton.jit
def wg_nearest(x):
    """The nearest integer to a small x, as a number and as an integer of its width; NaN and garbage for NaN."""
    if x.dtype == tl.float64:
        t = x + 6755399441055744.0
        n = t - 6755399441055744.0
        i = wg_as_int(t) - 0x4338000000000000
    else:
        t = x + 12582912.0
        n = t - 12582912.0
        i = wg_as_int(t) - 0x4B400000
    return n, i
