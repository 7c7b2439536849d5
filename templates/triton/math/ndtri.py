# needs: erfcx, erfinv, log, sqrt
# The quantile of the normal distribution: sqrt(2) erfinv(2 p - 1) for p from 1/4 to 3/4. Below, one step of Newton on
# log(ndtr(y)) - log(p) from a guess, our own Chebyshev fit in 1 / sqrt(-log p) (2^-22); above by symmetry.
@triton.jit
def wg_ndtri(of):
    x = of.to(tl.float64)
    m = tl.where(x > 0.5, 1.0 - x, x)
    q = tl.where((m > 0.0) & (m < 0.25), m, 0.25)
    logged = wg_log(q)
    d = wg_sqrt(0.0 - logged)
    t = (1.0 / d - 0.0365) * 2.4600246002460024 - 1.0
    p = t * 0.0012610983876595243 - 0.0012221934777753628
    p = p * t - 0.00351993676542472
    p = p * t + 0.003051719042659216
    p = p * t + 0.0044438078923234
    p = p * t - 0.0035883263333907184
    p = p * t - 0.0024639111029807754
    p = p * t + 0.0014756454322896319
    p = p * t + 0.0016384122714598575
    p = p * t - 0.0018879792882189564
    p = p * t + 0.0027580653083095806
    p = p * t - 0.007490661561161993
    p = p * t + 0.0242581422504907
    p = p * t - 0.10877648888394385
    p = p * t - 0.4470297825974257
    p = p * t + 1.1096827498777044
    y = d * p
    e = wg_erfcx(y * 0.7071067811865476)
    y = y + (wg_log(e * 0.5) - y * y * 0.5 - logged) * e * 1.2533141373155003
    tail = tl.where(x > 0.5, y, 0.0 - y)
    central = tl.where(x < 0, float("nan"), wg_erfinv(2.0 * x - 1.0) * 1.4142135623730951)
    return tl.where((m > 0.0) & (m < 0.25), tail, central).to(of.dtype)
