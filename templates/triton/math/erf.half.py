# needs: copysign, erf_small, exp
@triton.jit
def wg_erf(x):
    """Return erf(x): wg_erf_small(x) for |x| < 1, else 1 - erfc(|x|) with the sign of x.

    erfc(a) = e^(-a Q(a)), where Q is our own minimax fit of -log(erfc(a)) / a on [1, 4] (2^-16 of erfc).
    """
    a = tl.abs(x)
    b = tl.where(a > 4.0, 4.0, a)
    q = b * -0.00011712845 + 0.0022360082
    q = q * b - 0.019016482
    q = q * b + 0.09779862
    q = q * b + 0.6426827
    q = q * b + 1.1260093
    return tl.where(a < 1, wg_erf_small(x), wg_copysign(1.0 - wg_exp(0.0 - b * q), x))
