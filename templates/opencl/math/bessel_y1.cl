// needs: bessel_j1_near, cos, hankel1, log, sin
// The Bessel function Y1: 2/pi (log(x) J1(x) - 1 / x) + x R(x^2) below 8 (Abramowitz & Stegun 9.1.11), R our own
// Chebyshev fit (2^-60). Errors are relative to the larger of 1 and 1 / x below 8, and to sqrt(2 / (pi x)) beyond.
static inline __attribute__((overloadable)) F wg_bessel_y1(F x) {
    F a = ((x > K(0.0)) & (x < K(8.0))) ? x : (F)(K(1.0));
    F t = a * a * K(0.03125) - K(1.0);
    F p = (F)(K(8.760001143977853e-13));
    p = p * t + K(-2.499531546171249e-11);
    p = p * t + K(6.169688029066965e-10);
    p = p * t + K(-1.3153147367094951e-08);
    p = p * t + K(2.3804930420514178e-07);
    p = p * t + K(-3.601000022590458e-06);
    p = p * t + K(4.467433012646365e-05);
    p = p * t + K(-0.0004438173434420147);
    p = p * t + K(0.0034224907399188495);
    p = p * t + K(-0.01962875683311711);
    p = p * t + K(0.07854786922242532);
    p = p * t + K(-0.19639839859930203);
    p = p * t + K(0.23507209206669755);
    p = p * t + K(0.02336757172099348);
    p = p * t + K(-0.24337743079193114);
    p = p * t + K(0.07075985882118005);
    F near = (wg_log(a) * wg_bessel_j1_near(a) - K(1.0) / a) * K(0.6366197723675814) + a * p;
    F b = (x < K(8.0)) ? (F)(K(8.0)) : x;
    F s = wg_sin(b);
    F c = wg_cos(b);
    F r = (x < K(8.0)) ? near : wg_hankel1(b, K(0.0) - (s + c), c - s);
    r = (x == INF) ? (F)(K(0.0)) : r;
    return (x > K(0.0)) ? r : ((x == K(0.0)) ? -INF : NOT_A_NUMBER);
}
