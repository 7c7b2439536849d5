# needs: erfcx, exp, log_excess, sqrt
# N. M. Temme, The asymptotic expansion of the incomplete gamma functions, SIAM J. Math. Anal. 10 (1979), and 8.12 of
# the NIST Digital Library of Mathematical Functions. With eta^2 / 2 = m - log(1 + m), it is e^(-a eta^2 / 2)
# (erfcx(|eta| sqrt(a / 2)) / 2 + sign(eta) S / sqrt(2 pi a)), where S = a / (a + beta(1)) * sum beta(n) eta^n,
# beta(n) = f(n + 1) + (n + 2) beta(n + 2) / a, and f(n) are the coefficients of eta / m as a series in eta. The
# recurrence follows from the derivatives of both sides with respect to eta.
@triton.jit
def wg_gamma_uniform(a, m):
    """The smaller regularised incomplete gamma function by an expansion that is uniform in m = x / a - 1.

    In float64, for a >= 12 and m from -1/2 to 1.
    """
    d = wg_log_excess(m, m + 1.0)
    v = 1.0 / a
    eta = wg_sqrt(d + d)
    eta = tl.where(m < 0.0, 0.0 - eta, eta)
    even = v * 0.0 + -1.6522531216398162e-16
    odd = v * 0.0 + 2.5305430097478883e-18
    sum = odd * eta + even
    odd = odd * v * 27.0 + 8.099521156704561e-16
    sum = sum * eta + odd
    even = even * v * 26.0 + -1.9752288294349442e-15
    sum = sum * eta + even
    odd = odd * v * 25.0 + -5.139111834242572e-16
    sum = sum * eta + odd
    even = even * v * 24.0 + 2.8534893807047445e-14
    sum = sum * eta + even
    odd = odd * v * 23.0 + -1.392388722418162e-13
    sum = sum * eta + odd
    even = even * v * 22.0 + 3.371763262400985e-13
    sum = sum * eta + even
    odd = odd * v * 21.0 + 1.1004392031956135e-13
    sum = sum * eta + odd
    even = even * v * 20.0 + -5.0276692801141755e-12
    sum = sum * eta + even
    odd = odd * v * 19.0 + 2.4361948020667415e-11
    sum = sum * eta + odd
    even = even * v * 18.0 + -5.830772132550426e-11
    sum = sum * eta + even
    odd = odd * v * 17.0 + -2.5514193994946248e-11
    sum = sum * eta + odd
    even = even * v * 16.0 + 9.14769958223679e-10
    sum = sum * eta + even
    odd = odd * v * 15.0 + -4.382036018453353e-09
    sum = sum * eta + odd
    even = even * v * 14.0 + 1.0261809784240309e-08
    sum = sum * eta + even
    odd = odd * v * 13.0 + 6.707853543401498e-09
    sum = sum * eta + odd
    even = even * v * 12.0 + -1.7665952736826078e-07
    sum = sum * eta + even
    odd = odd * v * 11.0 + 8.296711340953087e-07
    sum = sum * eta + odd
    even = even * v * 10.0 + -1.85406221071516e-06
    sum = sum * eta + even
    odd = odd * v * 9.0 + -2.185448510679992e-06
    sum = sum * eta + odd
    even = even * v * 8.0 + 3.919263178522438e-05
    sum = sum * eta + even
    odd = odd * v * 7.0 + -0.0001787551440329218
    sum = sum * eta + odd
    even = even * v * 6.0 + 0.0003527336860670194
    sum = sum * eta + even
    odd = odd * v * 5.0 + 0.0011574074074074073
    sum = sum * eta + odd
    even = even * v * 4.0 + -0.014814814814814815
    sum = sum * eta + even
    odd = odd * v * 3.0 + 0.08333333333333333
    sum = sum * eta + odd
    even = even * v * 2.0 + -0.3333333333333333
    sum = sum * eta + even
    sum = sum / (1.0 + odd * v) / wg_sqrt(a) * 0.3989422804014327
    sum = tl.where(m < 0.0, 0.0 - sum, sum)
    return wg_exp(0.0 - a * d) * (0.5 * wg_erfcx(wg_sqrt(a * d)) + sum)
