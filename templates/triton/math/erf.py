# needs: copysign, erf_small, erfc_positive, exp
# float32 beyond 1: 1 - e^(-|x| Q(|x|)), where Q is our own minimax fit of -log(erfc(a)) / a (2^-31 of erf), the shape
# of N. Juffa's erff.
@triton.jit
def wg_erf(x):
    a = tl.abs(x)
    if x.dtype == tl.float64:
        big = 1.0 - wg_erfc_positive(a)
    else:
        b = tl.where(a > 4.0, 4.0, a)
        q = b * 1.3961148e-05 - 0.000350574
        q = q * b + 0.0037573848
        q = q * b - 0.024009837
        q = q * b + 0.106530555
        q = q * b + 0.6349698
        q = q * b + 1.1286943
        big = 1.0 - wg_exp(0.0 - b * q)
    return tl.where(a < 1, wg_erf_small(x), wg_copysign(big, x))
