// needs: erf_small, erfc_ratio, exp, upper
// e^(x^2) erfc(x): erfc below 1/2, the polynomial of erfc up to 30 (10 in float), then the asymptotic series
// (Abramowitz & Stegun 7.1.23). Below 0 it is 2 e^(x^2) - erfcx(-x); with h the upper half of the bits of x, x^2 =
// h^2 + (x - h)(x + h), and h^2 is exact.
static inline __attribute__((overloadable)) F wg_erfcx(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F h = wg_upper(a);
    F e = wg_exp(h * h) * wg_exp((a - h) * (a + h));
    F b = (a > (BITS == 64 ? K(30.0) : K(10.0))) ? (BITS == 64 ? K(30.0) : K(10.0)) : a;
    F y = K(1.0) / a;
    F z = y * y;
    F t = z * (z * (z * (z * (z * (z * K(162.421875) - K(29.53125)) + K(6.5625)) - K(1.875)) + K(0.75)) - K(0.5)) + K(1.0);
    F far = t * y * K(0.5641895835477563);
    F r = (a < K(0.5)) ? (e * (K(1.0) - wg_erf_small((a < K(0.5)) ? a : (F)(K(0.0))))) : ((a < (BITS == 64 ? K(30.0) : K(10.0))) ? wg_erfc_ratio(b) : far);
    e = (a > K(27.0)) ? INF : e;
    return (x < K(0.0)) ? (K(2.0) * e - r) : r;
}
