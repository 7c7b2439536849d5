// needs: exp, lgamma, log_excess, pow, sqrt
// x^(a - c) e^-x / gamma(a + 1 - c) for positive finite a and x, where c is 0 or 1. From a = 12 on it is computed from
// a (x / a - 1 - log(x / a)), in which large terms have cancelled, and Stirling's series for log(gamma(a)) (5.11.1 of
// the NIST Digital Library of Mathematical Functions). Below 12, e^-x is multiplied in halves: it may underflow alone.
static inline __attribute__((overloadable)) F wg_gamma_factor(F a, F x, int c) {
    M big = a >= K(12.0);
    F b = big ? a : (F)(K(12.0));
    F y = big ? x : b;
    F v = K(1.0) / b;
    F w = v * v;
    F t = (F)(K(0.00641025641025641));
    t = t * w + K(-0.0019175269175269176);
    t = t * w + K(0.0008417508417508417);
    t = t * w + K(-0.0005952380952380953);
    t = t * w + K(0.0007936507936507937);
    t = t * w + K(-0.002777777777777778);
    t = t * w + K(0.08333333333333333);
    F e = wg_exp((F)(K(0.0)) - b * wg_log_excess((y - b) / b, y / b) - t * v) / wg_sqrt(b) * K(0.3989422804014327);
    if (c) e = e > K(0.0) ? e * (b / y) : e;
    F s = big ? (F)(K(1.0)) : a;
    F z = (big | (x > (BITS == 64 ? K(2000.0) : K(250.0)))) ? (F)(BITS == 64 ? K(2000.0) : K(250.0)) : x;
    F h = wg_exp(K(-0.5) * z);
    F d = wg_pow(z, s - c) * h / wg_exp(wg_lgamma(s + (1 - c))) * h;
    return big ? e : d;
}
