// needs: bessel_j0_near, cos, hankel0, log, sin
// The Bessel function Y0: 2/pi log(x) J0(x) + R(x^2) below 8 (Abramowitz & Stegun 9.1.13), R our own Chebyshev fit
// (2^-60). Errors are relative to the larger of 1 and log(x) below 8, and to sqrt(2 / (pi x)) beyond.
static inline __attribute__((overloadable)) F wg_bessel_y0(F x) {
    F a = ((x > K(0.0)) & (x < K(8.0))) ? x : (F)(K(1.0));
    F t = a * a * K(0.03125) - K(1.0);
    F p = (F)(K(-8.840112096073101e-13));
    p = p * t + K(2.6926938054524057e-11);
    p = p * t + K(-7.13046146536789e-10);
    p = p * t + K(1.6390875014077404e-08);
    p = p * t + K(-3.2185078445935923e-07);
    p = p * t + K(5.3213188103997145e-06);
    p = p * t + K(-7.279541882454115e-05);
    p = p * t + K(0.000806158605961636);
    p = p * t + K(-0.00702574105727097);
    p = p * t + K(0.046367047681375125);
    p = p * t + K(-0.21895747096171628);
    p = p * t + K(0.6721770783431679);
    p = p * t + K(-1.0775477338215995);
    p = p * t + K(0.14412632369302475);
    p = p * t + K(1.6470964788745466);
    p = p * t + K(-0.8284358903604587);
    p = p * t + K(-0.382250654459425);
    F near = wg_log(a) * K(0.6366197723675814) * wg_bessel_j0_near(a) + p;
    F b = (x < K(8.0)) ? (F)(K(8.0)) : x;
    F s = wg_sin(b);
    F c = wg_cos(b);
    F r = (x < K(8.0)) ? near : wg_hankel0(b, s - c, K(0.0) - (c + s));
    r = (x == INF) ? (F)(K(0.0)) : r;
    return (x > K(0.0)) ? r : ((x == K(0.0)) ? -INF : NOT_A_NUMBER);
}
