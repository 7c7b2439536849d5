# needs: erf_small, erfc_positive
@triton.jit
def wg_erfc(x):
    """1 - erf(x) where the subtraction loses no accuracy."""
    a = tl.abs(x)
    r = wg_erfc_positive(a)
    r = tl.where(x < 0, 2.0 - r, r)
    return tl.where(a < 0.5, 1.0 - wg_erf_small(x), r)
