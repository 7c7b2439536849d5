# needs: as_float, as_int, erfc_ratio, exp
# e^(-a^2) times wg_erfc_ratio. With h the upper half of a, a^2 = h^2 + d and d = (a - h)(a + h), where h^2 is exact:
# right whether or not the compiler fuses products into sums; e^-d by its series.
@triton.jit
def wg_erfc_positive(a):
    """erfc(a) for a >= 0 (float32: a >= 1/2)."""
    if a.dtype == tl.float64:
        a = tl.where(a > 30.0, 30.0, a)
        h = wg_as_float((wg_as_int(a) >> 27) << 27)
        d = (a - h) * (a + h)
        rest = 1.0 - d * (1.0 - d * (0.5 - d * 0.16666666666666666))
    else:
        a = tl.where(a > 10.5, 10.5, a)
        h = wg_as_float((wg_as_int(a) >> 12) << 12)
        d = (a - h) * (a + h)
        rest = 0.041666668 - d * 0.008333334
        rest = 1.0 - d * (1.0 - d * (0.5 - d * (0.16666667 - d * rest)))
    return wg_exp(0.0 - h * h) * (wg_erfc_ratio(a) * rest)
