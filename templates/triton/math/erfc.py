# needs: erf_small, erfc_positive
@triton.jit
def wg_erfc(x):
    """Return erfc(x) = 1 - erf(x).

    The subtraction is used for |x| < 1/2 only. Beyond, it would cancel: there the result is wg_erfc_positive(|x|), or
    for negative x, 2 minus it.
    """
    a = tl.abs(x)
    positive = wg_erfc_positive(a)
    either_sign = tl.where(x < 0, 2.0 - positive, positive)
    return tl.where(a < 0.5, 1.0 - wg_erf_small(x), either_sign)
