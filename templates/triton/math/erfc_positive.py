# needs: as_float, as_int, div, exp
# e^(-a^2) P(q) / (1 + 2 a) with q = (a - 4) / (a + 4), the form of Shepherd & Laframboise (1981); P our own minimax
# fits (2^-28 and 2^-61). With h the upper half of a, a^2 = h^2 + d and d = (a - h)(a + h), where h^2 is exact: right
# whether or not the compiler fuses products into sums; e^-d by its series.
@triton.jit
def wg_erfc_positive(a):
    """erfc(a) for a >= 0 (float32: a >= 1/2)."""
    if a.dtype == tl.float64:
        a = tl.where(a > 30.0, 30.0, a)
        h = wg_as_float((wg_as_int(a) >> 27) << 27)
        d = (a - h) * (a + h)
        rest = 1.0 - d * (1.0 - d * (0.5 - d * 0.16666666666666666))
        q = wg_div(a - 4.0, a + 4.0)
        p = q * 4.0379424678822704e-11 - 1.3737798764951375e-10
        p = p * q - 5.285810942272393e-10
        p = p * q + 1.789816091020318e-09
        p = p * q + 3.925102793573399e-09
        p = p * q - 1.4708217362527247e-08
        p = p * q - 2.1826179287558167e-08
        p = p * q + 1.1009540179408372e-07
        p = p * q + 7.883713303734094e-08
        p = p * q - 8.249180031961397e-07
        p = p * q + 2.9097643420601303e-07
        p = p * q + 5.709204926191428e-06
        p = p * q - 1.122078812762194e-05
        p = p * q - 2.4398944088946508e-05
        p = p * q + 0.0001506213191798314
        p = p * q - 0.0001992567758833028
        p = p * q - 0.0007577732221834935
        p = p * q + 0.00503196999268944
        p = p * q - 0.016197734065568972
        p = p * q + 0.03716751553592733
        p = p * q - 0.0663303658116815
        p = p * q + 0.09373283499843835
        p = p * q - 0.10103906603632357
        p = p * q + 0.06809705425469038
        p = p * q + 0.015379652102620016
        p = p * q - 0.1396211168405625
        p = p * q + 1.2329951186255526
    else:
        a = tl.where(a > 10.5, 10.5, a)
        h = wg_as_float((wg_as_int(a) >> 12) << 12)
        d = (a - h) * (a + h)
        rest = 0.041666668 - d * 0.008333334
        rest = 1.0 - d * (1.0 - d * (0.5 - d * (0.16666667 - d * rest)))
        q = wg_div(a - 4.0, a + 4.0)
        p = q * -4.5230976e-05 + 0.005189895
        p = p * q - 0.016599659
        p = p * q + 0.037024394
        p = p * q - 0.06624449
        p = p * q + 0.093764655
        p = p * q - 0.101047054
        p = p * q + 0.06809459
        p = p * q + 0.015379937
        p = p * q - 0.13962106
        p = p * q + 1.2329952
    return wg_exp(0.0 - h * h) * (wg_div(p, 1.0 + 2.0 * a) * rest)
