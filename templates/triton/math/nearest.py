# needs: as_int
# Round by an addition of 1.5 * 2^52 in float64, or 1.5 * 2^23 in float32. Floats of this size are 1 apart, so the sum
# is rounded to an integer, and its low bits are that integer. A conversion to an integer type would be undefined for
# NaN. If x is a product, the compiler may fuse it with the addition (FMA), which rounds only once.
@triton.jit
def wg_nearest(x):
    """Return the integer nearest to x as a float of x's dtype, and as int64 (x is float64) or int32 (float32).

    |x| must be below 2^51 (float64) or 2^22 (float32). For NaN the float is NaN, and the integer is undefined.
    """
    if x.dtype == tl.float64:
        shifted = x + 6755399441055744.0
        rounded = shifted - 6755399441055744.0
        integer = wg_as_int(shifted) - 0x4338000000000000  # the bits of 1.5 * 2^52
    else:
        shifted = x + 12582912.0
        rounded = shifted - 12582912.0
        integer = wg_as_int(shifted) - 0x4B400000  # the bits of 1.5 * 2^23
    return rounded, integer
