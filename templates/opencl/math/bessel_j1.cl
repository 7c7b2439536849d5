// needs: bessel_j1_near, cos, hankel1, sin
// The Bessel function J1, which is odd. Errors are relative to sqrt(2 / (pi x)) from 8 on.
static inline __attribute__((overloadable)) F wg_bessel_j1(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F near = wg_bessel_j1_near((a < K(8.0)) ? a : (F)(K(0.0)));
    F b = (a < K(8.0)) ? (F)(K(8.0)) : a;
    F s = wg_sin(b);
    F c = wg_cos(b);
    F r = (a < K(8.0)) ? near : wg_hankel1(b, s - c, K(0.0) - (s + c));
    r = (a == INF) ? (F)(K(0.0)) : r;
    return (x < K(0.0)) ? (K(0.0) - r) : r;
}
