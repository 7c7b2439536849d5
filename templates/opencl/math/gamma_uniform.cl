// needs: erfcx, exp, log_excess, sqrt
// The smaller one of the regularised incomplete gamma functions by the asymptotic expansion that is uniform in x / a,
// for a >= 12 and m = x / a - 1 from -1/2 to 1: N. M. Temme, The asymptotic expansion of the incomplete gamma
// functions, SIAM J. Math. Anal. 10 (1979), and 8.12 of the NIST Digital Library of Mathematical Functions. With
// eta^2 / 2 = m - log(1 + m), it is e^(-a eta^2 / 2) (erfcx(|eta| sqrt(a / 2)) / 2 + sign(eta) S / sqrt(2 pi a)), where
// S = a / (a + beta(1)) * sum beta(n) eta^n, beta(n) = f(n + 1) + (n + 2) beta(n + 2) / a, and f(n) are the
// coefficients of eta / m as a series in eta. The recurrence follows from the derivatives of both sides with respect
// to eta.
static inline __attribute__((overloadable)) F wg_gamma_uniform(F a, F m) {
    F d = wg_log_excess(m, m + K(1.0));
    F v = K(1.0) / a;
    F eta = wg_sqrt(d + d);
    eta = m < K(0.0) ? (F)(K(0.0)) - eta : eta;
    F even = (F)(K(-1.6522531216398162e-16));
    F odd = (F)(K(2.5305430097478883e-18));
    F sum = odd * eta + even;
    odd = odd * v * K(27.0) + K(8.099521156704561e-16);
    sum = sum * eta + odd;
    even = even * v * K(26.0) + K(-1.9752288294349442e-15);
    sum = sum * eta + even;
    odd = odd * v * K(25.0) + K(-5.139111834242572e-16);
    sum = sum * eta + odd;
    even = even * v * K(24.0) + K(2.8534893807047445e-14);
    sum = sum * eta + even;
    odd = odd * v * K(23.0) + K(-1.392388722418162e-13);
    sum = sum * eta + odd;
    even = even * v * K(22.0) + K(3.371763262400985e-13);
    sum = sum * eta + even;
    odd = odd * v * K(21.0) + K(1.1004392031956135e-13);
    sum = sum * eta + odd;
    even = even * v * K(20.0) + K(-5.0276692801141755e-12);
    sum = sum * eta + even;
    odd = odd * v * K(19.0) + K(2.4361948020667415e-11);
    sum = sum * eta + odd;
    even = even * v * K(18.0) + K(-5.830772132550426e-11);
    sum = sum * eta + even;
    odd = odd * v * K(17.0) + K(-2.5514193994946248e-11);
    sum = sum * eta + odd;
    even = even * v * K(16.0) + K(9.14769958223679e-10);
    sum = sum * eta + even;
    odd = odd * v * K(15.0) + K(-4.382036018453353e-09);
    sum = sum * eta + odd;
    even = even * v * K(14.0) + K(1.0261809784240309e-08);
    sum = sum * eta + even;
    odd = odd * v * K(13.0) + K(6.707853543401498e-09);
    sum = sum * eta + odd;
    even = even * v * K(12.0) + K(-1.7665952736826078e-07);
    sum = sum * eta + even;
    odd = odd * v * K(11.0) + K(8.296711340953087e-07);
    sum = sum * eta + odd;
    even = even * v * K(10.0) + K(-1.85406221071516e-06);
    sum = sum * eta + even;
    odd = odd * v * K(9.0) + K(-2.185448510679992e-06);
    sum = sum * eta + odd;
    even = even * v * K(8.0) + K(3.919263178522438e-05);
    sum = sum * eta + even;
    odd = odd * v * K(7.0) + K(-0.0001787551440329218);
    sum = sum * eta + odd;
    even = even * v * K(6.0) + K(0.0003527336860670194);
    sum = sum * eta + even;
    odd = odd * v * K(5.0) + K(0.0011574074074074073);
    sum = sum * eta + odd;
    even = even * v * K(4.0) + K(-0.014814814814814815);
    sum = sum * eta + even;
    odd = odd * v * K(3.0) + K(0.08333333333333333);
    sum = sum * eta + odd;
    even = even * v * K(2.0) + K(-0.3333333333333333);
    sum = sum * eta + even;
    sum = sum / (K(1.0) + odd * v) / wg_sqrt(a) * K(0.3989422804014327);
    sum = m < K(0.0) ? (F)(K(0.0)) - sum : sum;
    return wg_exp((F)(K(0.0)) - a * d) * (K(0.5) * wg_erfcx(wg_sqrt(a * d)) + sum);
}
