// needs: sqrt, asin_poly
// |x| <= 1/2 by the polynomial; beyond, pi/2 - 2 asin(s) with s = sqrt((1 - |x|) / 2).
// Largest error measured: 2.26 ULP in float, 2.08 in double.
static inline __attribute__((overloadable)) F wg_asin(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    M big = a > K(0.5);
    F z = big ? (1 - a) * K(0.5) : a * a, s = big ? wg_sqrt(z) : a, r = s + s * wg_asin_poly(z);
    F low = (F)(BITS == 64 ? K(6.123233995736766e-17) : K(-4.37113883e-08));
    r = big ? K(1.57079632679489661923) - (2 * r - low) : r;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
