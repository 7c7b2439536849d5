// needs: erf_small, erfc_positive
// 1 - erf(x) where the subtraction loses no accuracy.
// Largest error measured: 3.85 ULP in float, 3.40 in double.
static inline __attribute__((overloadable)) F wg_erfc(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), r = wg_erfc_positive(a);
    r = x < 0 ? 2 - r : r;
    return a < K(0.5) ? 1 - wg_erf_small(x) : r;
}
