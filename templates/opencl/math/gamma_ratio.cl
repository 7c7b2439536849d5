// needs: exp, expm1, gamma_factor, gamma_uniform, log
// The regularised incomplete gamma function for positive finite a and x, the upper one or the lower one. Each region
// has one of them by a sum of positive terms, or by one that hardly cancels; the other one is 1 minus it.
//  - a >= 12 and x from a / 2 to 2 a: Temme's uniform expansion for the smaller one.
//  - other x > a with x >= 1.1: the continued fraction of the upper one, 8.9.2 of the NIST Digital Library of
//    Mathematical Functions (DLMF), contracted to its even part, by Steed's method. Lanes that have converged add 0,
//    because changes that go on getting smaller become subnormal, which is slow.
//  - x < 1.1 and a < 1/2: 1 minus the series 8.7.1 of DLMF, whose first term is 1 + expm1(u) with u = a log(x) -
//    log(gamma(a + 1)), for the upper one, which is small with a. log(gamma(a + 1)) is a P(a), P our own Chebyshev fit
//    (2^-57).
//  - elsewhere, and for the lower one there: the series 8.11.4 of DLMF.
static inline __attribute__((overloadable)) F wg_gamma_ratio(F a, F x, int upper) {
    F m = (x - a) / a;
    M uniform = (a >= K(12.0)) & (m >= K(-0.5)) & (m <= K(1.0));
    M fraction = (x >= K(1.1)) & (x > a) & !uniform;
    M small = (x < K(1.1)) & (a < K(0.5)) & (upper ? (x == x) : (x != x));
    M series = !(uniform | fraction | small);
    M is_upper = fraction | small | (uniform & (m >= K(0.0)));
    F r = (F)(K(0.0));
    if (ANY(uniform)) r = wg_gamma_uniform(uniform ? a : (F)(K(12.0)), uniform ? m : (F)(K(0.0)));
    if (ANY(series)) {
        F n = a, term = (F)(K(1.0)), sum = (F)(K(1.0));
        for (M step = series; ANY(step);) {
            n = n + K(1.0);
            term = step ? term * (x / n) : term;
            step = step & (sum + term > sum);
            sum = step ? sum + term : sum;
        }
        r = series ? wg_gamma_factor(a, x, 0) * sum : r;
    }
    if (ANY(fraction)) {
        F s = fraction ? a : (F)(K(1.0)), n = (F)(K(0.0)), b = (fraction ? x : (F)(K(2.0))) + K(1.0) - s;
        F d = K(1.0) / b, change = d, sum = d;
        for (M step = fraction; ANY(step);) {
            n = n + K(1.0);
            b = b + K(2.0);
            d = K(1.0) / (b + n * (s - n) * d);
            change = step ? (b * d - K(1.0)) * change : (F)(K(0.0));
            step = step & (sum + change != sum) & (n < K(1000.0));
            sum = sum + change;
        }
        r = fraction ? wg_gamma_factor(a, x, 0) * s * sum : r;
    }
    if (ANY(small)) {
        F s = small ? a : (F)(K(0.25)), y = small ? x : (F)(K(1.0)), n = (F)(K(0.0)), term = s, sum = (F)(K(0.0));
        F p = (F)(K(-0.0019063835610750456));
        p = p * s + K(0.010153045278653747);
        p = p * s + K(-0.02663318495612038);
        p = p * s + K(0.04709138943135492);
        p = p * s + K(-0.06539820745258526);
        p = p * s + K(0.07912917581932445);
        p = p * s + K(-0.08976429495525075);
        p = p * s + K(0.0998435956128985);
        p = p * s + K(-0.11129269142619333);
        p = p * s + K(0.12550464913071976);
        p = p * s + K(-0.14404945716269785);
        p = p * s + K(0.1695571500757378);
        p = p * s + K(-0.2073855499361632);
        p = p * s + K(0.27058080840077436);
        p = p * s + K(-0.40068563438617866);
        p = p * s + K(0.8224670334241114);
        p = p * s + K(-0.5772156649015329);
        F u = s * (wg_log(y) - p);
        for (M step = small; ANY(step);) {
            n = n + K(1.0);
            term = term * (y / n) * K(-1.0);
            step = step & (sum + term / (s + n) != sum);
            sum = step ? sum + term / (s + n) : sum;
        }
        r = small ? (F)(K(0.0)) - wg_expm1(u) - wg_exp(u) * sum : r;
    }
    r = r > K(1.0) ? (F)(K(1.0)) : r;
    return (upper ? is_upper : !is_upper) ? r : K(1.0) - r;
}
