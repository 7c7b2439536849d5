# needs: any, pow_f64
# The Euler-Maclaurin formula (25.11.7 of the NIST Digital Library of Mathematical Functions with 10 Bernoulli numbers),
# the first terms one by one, until they no longer matter. The constants are the ratios of successive B(2j) / (2j)!, B
# the Bernoulli numbers.
@triton.jit
def wg_zeta_sum(s, q, c):
    """The sum of ((q + k) c)^-s over k = 0, 1, ... for q > 0, in float64."""
    q = q + s * 0.0
    sum = tl.zeros_like(q)
    term = sum + 1.0
    while wg_any((q < 8.0 + s) & (term > sum * 1e-18)):
        step = (q < 8.0 + s) & (term > sum * 1e-18)
        term = tl.where(step, wg_pow_f64(q * c, 0.0 - s), term)
        sum = tl.where(step, sum + term, sum)
        q = tl.where(step, q + 1.0, q)
    v = 1.0 / q
    z = v * v
    t = 1.0 + (s + 17.0) * (s + 18.0) * z * -0.02533022338183393
    t = 1.0 + (s + 15.0) * (s + 16.0) * z * (-0.02533000550403749 * t)
    t = 1.0 + (s + 13.0) * (s + 14.0) * z * (-0.025329131652661065 * t)
    t = 1.0 + (s + 11.0) * (s + 12.0) * z * (-0.02532561505065123 * t)
    t = 1.0 + (s + 9.0) * (s + 10.0) * z * (-0.025311355311355312 * t)
    t = 1.0 + (s + 7.0) * (s + 8.0) * z * (-0.025252525252525252 * t)
    t = 1.0 + (s + 5.0) * (s + 6.0) * z * (-0.025 * t)
    t = 1.0 + (s + 3.0) * (s + 4.0) * z * (-0.023809523809523808 * t)
    t = 1.0 + (s + 1.0) * (s + 2.0) * z * (-0.016666666666666666 * t)
    tail = 1.0 / (s - 1.0) + v * (0.5 + s * v * (0.08333333333333333 * t))
    rest = wg_pow_f64(q * c, 1.0 - s) / c * tail
    return tl.where((q == float("inf")) | (q < 8.0 + s), sum, sum + rest)
