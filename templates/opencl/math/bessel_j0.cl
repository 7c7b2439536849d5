// needs: bessel_j0_near, cos, hankel0, sin
// The Bessel function J0. Errors are relative to sqrt(2 / (pi x)) from 8 on.
static inline __attribute__((overloadable)) F wg_bessel_j0(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F near = wg_bessel_j0_near((a < K(8.0)) ? a : (F)(K(0.0)));
    F b = (a < K(8.0)) ? (F)(K(8.0)) : a;
    F s = wg_sin(b);
    F c = wg_cos(b);
    F r = (a < K(8.0)) ? near : wg_hankel0(b, c + s, s - c);
    return (a == INF) ? (F)(K(0.0)) : r;
}
