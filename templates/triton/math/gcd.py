# needs: abs, any, fmod
@triton.jit
def wg_gcd(x, y):
    """Greatest common divisor by Euclid's algorithm; the magnitude of the most negative integer wraps around."""
    a = x + (y & 0)
    b = y + (x & 0)
    while wg_any(b != 0):
        rest = wg_fmod(a, b)
        a = tl.where(b == 0, a, b)
        b = rest
    return wg_abs(a)
