# needs: log_split, nearest, pow_ends, two_to
# exp2(y log2 |x|) in float64, the logarithm to 2^-43 and the power to 2^-40: our own minimax fits.
@triton.jit
def wg_pow_f32(x, y):
    f, e = wg_log_split(tl.abs(x).to(tl.float64))
    s = f / (2.0 + f)
    z = s * s
    p = z * 0.2829175400260188 + 0.3199044803232388
    p = p * z + 0.41220928210890484
    p = p * z + 0.5770779420690869
    p = p * z + 0.9617966941143694
    p = p * z + 2.8853900817778495
    t = y.to(tl.float64) * (e + s * p)
    t = tl.where(t < -1000.0, -1000.0, t)
    t = tl.where(t > 1000.0, 1000.0, t)
    n, i = wg_nearest(t)
    r = t - n
    q = r * 1.3263791988030997e-06 + 1.5310126185841216e-05
    q = q * r + 0.00015403413838651646
    q = q * r + 0.001333345047655327
    q = q * r + 0.009618129222332508
    q = q * r + 0.05550410941134401
    q = q * r + 0.2402265069553798
    q = q * r + 0.693147180546057
    q = q * r + 1.0
    return wg_pow_ends(x, y, (q * wg_two_to(i)).to(tl.float32))
