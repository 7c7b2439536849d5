// needs: erf_small, erfc_positive
// Largest error measured: 1.11 ULP.
static inline __attribute__((overloadable)) F wg_erf(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), big = 1 - wg_erfc_positive(a);
    big = AS_F(AS_I(big) | (AS_I(x) & SIGN));
    return a < 1 ? wg_erf_small(x) : big;
}
