# needs: any, exp, expm1, gamma_factor, gamma_uniform, log
# Each region has one of both functions by a sum of positive terms, or by one that hardly cancels; the other one is 1
# minus it.
#  - a >= 12 and x from a / 2 to 2 a: Temme's uniform expansion for the smaller one.
#  - other x > a with x >= 1.1: the continued fraction of the upper one, 8.9.2 of the NIST Digital Library of
#    Mathematical Functions (DLMF), contracted to its even part, by Steed's method.
#  - x < 1.1 and a < 1/2: 1 minus the series 8.7.1 of DLMF, whose first term is 1 + expm1(u) with u = a log(x) -
#    log(gamma(a + 1)), for the upper one, which is small with a. log(gamma(a + 1)) is a P(a), P our own Chebyshev fit
#    (2^-57).
#  - elsewhere, and for the lower one there: the series 8.11.4 of DLMF.
@triton.jit
def wg_gamma_ratio(a, x, upper: tl.constexpr):
    """The upper or the lower regularised incomplete gamma function in float64, for positive finite a and x."""
    m = (x - a) / a
    uniform = (a >= 12.0) & (m >= -0.5) & (m <= 1.0)
    fraction = (x >= 1.1) & (x > a) & (uniform == 0)
    small = (x < 1.1) & (a < 0.5) & upper
    series = (uniform | fraction | small) == 0
    r = x * 0.0
    if wg_any(uniform):
        r = wg_gamma_uniform(tl.where(uniform, a, 12.0), tl.where(uniform, m, 0.0))
    if wg_any(series):
        n = a
        term = x * 0.0 + 1.0
        sum = x * 0.0 + 1.0
        step = series
        while wg_any(step):
            n = n + 1.0
            term = tl.where(step, term * (x / n), term)
            step = step & (sum + term > sum)
            sum = tl.where(step, sum + term, sum)
        r = tl.where(series, wg_gamma_factor(a, x, 0.0) * sum, r)
    if wg_any(fraction):
        s = tl.where(fraction, a, 1.0)
        n = x * 0.0
        b = tl.where(fraction, x, 2.0) + 1.0 - s
        d = 1.0 / b
        change = d
        sum = d
        step = fraction
        while wg_any(step):
            n = n + 1.0
            b = b + 2.0
            d = 1.0 / (b + n * (s - n) * d)
            change = tl.where(step, (b * d - 1.0) * change, 0.0)
            step = step & (sum + change != sum) & (n < 1000.0)
            sum = sum + change
        r = tl.where(fraction, wg_gamma_factor(a, x, 0.0) * s * sum, r)
    if wg_any(small):
        s = tl.where(small, a, 0.25)
        y = tl.where(small, x, 1.0)
        n = x * 0.0
        term = s
        sum = x * 0.0
        p = -0.0019063835610750456 * s + 0.010153045278653747
        p = p * s + -0.02663318495612038
        p = p * s + 0.04709138943135492
        p = p * s + -0.06539820745258526
        p = p * s + 0.07912917581932445
        p = p * s + -0.08976429495525075
        p = p * s + 0.0998435956128985
        p = p * s + -0.11129269142619333
        p = p * s + 0.12550464913071976
        p = p * s + -0.14404945716269785
        p = p * s + 0.1695571500757378
        p = p * s + -0.2073855499361632
        p = p * s + 0.27058080840077436
        p = p * s + -0.40068563438617866
        p = p * s + 0.8224670334241114
        p = p * s + -0.5772156649015329
        u = s * (wg_log(y) - p)
        step = small
        while wg_any(step):
            n = n + 1.0
            term = term * (y / n) * -1.0
            step = step & (sum + term / (s + n) != sum)
            sum = tl.where(step, sum + term / (s + n), sum)
        r = tl.where(small, 0.0 - wg_expm1(u) - wg_exp(u) * sum, r)
    is_upper = fraction | small | (uniform & (m >= 0.0))
    r = tl.where(r > 1.0, 1.0, r)
    return tl.where(is_upper == upper, r, 1.0 - r)
