// needs: bessel_i0_far, bessel_i0_near, exp, sqrt
// The Bessel function I0: its Taylor series below 8, then e^|x| times a polynomial of 8 / |x| over sqrt(|x|), our own
// Chebyshev fit (2^-58). The exponential is split, so that it overflows no earlier than the product.
static inline __attribute__((overloadable)) F wg_bessel_i0(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F n = (a < K(8.0)) ? a : (F)(K(0.0));
    F near = wg_bessel_i0_near(n);
    F b = (a < K(8.0)) ? (F)(K(8.0)) : a;
    F e = (b < K(80.0)) ? b : (F)(K(80.0));
    F r = (a < K(8.0)) ? near : (wg_exp(e) * wg_bessel_i0_far(b) / wg_sqrt(b) * wg_exp(b - e));
    r = (a == INF) ? INF : r;
    return r;
}
