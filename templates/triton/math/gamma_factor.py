# needs: exp, lgamma, log_excess, pow_f64, sqrt
# From a = 12 on it is computed from a (x / a - 1 - log(x / a)), in which large terms have cancelled, and Stirling's
# series for log(gamma(a)) (5.11.1 of the NIST Digital Library of Mathematical Functions). Below 12, e^-x is multiplied
# in halves: it may underflow alone.
@triton.jit
def wg_gamma_factor(a, x, c):
    """x^(a - c) e^-x / gamma(a + 1 - c) in float64, for positive finite a and x, where c is 0.0 or 1.0."""
    big = a >= 12.0
    b = tl.where(big, a, 12.0)
    y = tl.where(big, x, b)
    v = 1.0 / b
    w = v * v
    t = 0.00641025641025641 * w + -0.0019175269175269176
    t = t * w + 0.0008417508417508417
    t = t * w + -0.0005952380952380953
    t = t * w + 0.0007936507936507937
    t = t * w + -0.002777777777777778
    t = t * w + 0.08333333333333333
    e = wg_exp(0.0 - b * wg_log_excess((y - b) / b, y / b) - t * v) / wg_sqrt(b) * 0.3989422804014327
    e = tl.where((c != 0.0) & (e > 0.0), e * (b / y), e)
    s = tl.where(big, 1.0, a)
    z = tl.where(big | (x > 2000.0), 2000.0, x)
    h = wg_exp(-0.5 * z)
    d = wg_pow_f64(z, s - c) * h / wg_exp(wg_lgamma(s + (1.0 - c))) * h
    return tl.where(big, e, d)
