// needs: bessel_i0_far, bessel_i0_near, exp, sqrt
// The Bessel function I0 times e^-|x|: its Taylor series below 8, then a polynomial of 8 / |x| over sqrt(|x|), our
// own Chebyshev fit (2^-58).
static inline __attribute__((overloadable)) F wg_bessel_i0e(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F n = (a < K(8.0)) ? a : (F)(K(0.0));
    F near = wg_exp(K(0.0) - n) * wg_bessel_i0_near(n);
    F b = (a < K(8.0)) ? (F)(K(8.0)) : a;
    F r = (a < K(8.0)) ? near : (wg_bessel_i0_far(b) / wg_sqrt(b));
    return r;
}
