// needs: bessel_k0_far, bessel_k0_near, exp, sqrt
// The Bessel function K0 times e^x: its series up to 1 (Abramowitz & Stegun 9.6.13), then a polynomial of 1 / x over
// sqrt(x), our own Chebyshev fit (2^-58).
static inline __attribute__((overloadable)) F wg_bessel_k0e(F x) {
    F a = ((x > K(0.0)) & (x <= K(1.0))) ? x : (F)(K(1.0));
    F near = wg_bessel_k0_near(a) * wg_exp(a);
    F b = (x > K(1.0)) ? x : (F)(K(1.0));
    F far = wg_bessel_k0_far(b) / wg_sqrt(b);
    F r = (x <= K(1.0)) ? near : far;
    return (x > K(0.0)) ? r : ((x == K(0.0)) ? INF : NOT_A_NUMBER);
}
