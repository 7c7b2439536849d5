# needs: copysign, erf_small, erfc_positive, exp
@triton.jit
def wg_erf(x):
    """Return erf(x): wg_erf_small(x) for |x| < 1, else 1 - erfc(|x|) with the sign of x.

    In float32, erfc(a) = e^(-a Q(a)), the form of N. Juffa's erff, where Q is our own minimax fit of
    -log(erfc(a)) / a on [1, 4] (2^-31 of erf). Beyond 4, erf rounds to 1.
    """
    a = tl.abs(x)
    if x.dtype == tl.float64:
        beyond_1 = 1.0 - wg_erfc_positive(a)
    else:
        b = tl.where(a > 4.0, 4.0, a)
        q = b * 1.3961148e-05 - 0.000350574
        q = q * b + 0.0037573848
        q = q * b - 0.024009837
        q = q * b + 0.106530555
        q = q * b + 0.6349698
        q = q * b + 1.1286943
        beyond_1 = 1.0 - wg_exp(0.0 - b * q)
    return tl.where(a < 1, wg_erf_small(x), wg_copysign(beyond_1, x))
