# needs:
@triton.jit
def wg_asin_poly(z):
    """Return (asin(s) - s) / s for z = s^2 in [0, 1/4]: our own minimax fits.

    The error of asin(s) is 2^-31.6 at most with the coefficients for float32, 2^-59.6 with those for float64.
    """
    if z.dtype == tl.float64:
        p = z * 0.03272768518320219 - 0.021156609232120673
        p = p * z + 0.021818168725601016
        p = p * z + 0.0036611541073761997
        p = p * z + 0.010792165202138493
        p = p * z + 0.01139679971240586
        p = p * z + 0.013981077037041743
        p = p * z + 0.017351590777448002
        p = p * z + 0.02237221615950233
        p = p * z + 0.030381942666632963
        p = p * z + 0.044642857175458336
        p = p * z + 0.07499999999969927
        p = p * z + 0.16666666666666763
    else:
        p = z * 0.037590653 + 0.014385462
        p = p * z + 0.031821862
        p = p * z + 0.04451525
        p = p * z + 0.07500513
        p = p * z + 0.1666666
    return z * p
