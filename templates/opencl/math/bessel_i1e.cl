// needs: bessel_i1_far, bessel_i1_near, exp, sqrt
// The Bessel function I1 times e^-|x|: its Taylor series below 8, then a polynomial of 8 / |x| over sqrt(|x|), our
// own Chebyshev fit (2^-58).
static inline __attribute__((overloadable)) F wg_bessel_i1e(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F n = (a < K(8.0)) ? a : (F)(K(0.0));
    F near = wg_exp(K(0.0) - n) * n * wg_bessel_i1_near(n);
    F b = (a < K(8.0)) ? (F)(K(8.0)) : a;
    F r = (a < K(8.0)) ? near : (wg_bessel_i1_far(b) / wg_sqrt(b));
    return (x < K(0.0)) ? (K(0.0) - r) : r;
}
