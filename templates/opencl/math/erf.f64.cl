// needs: erf_small, erfc_positive
// erf(x) by a polynomial for |x| < 1; beyond, 1 - erfc(|x|) with the sign of x.
// Largest error measured: 1.11 ULP.
static inline __attribute__((overloadable)) F wg_erf(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), r = 1 - wg_erfc_positive(a);
    r = AS_F(AS_I(r) | (AS_I(x) & SIGN));
    return a < 1 ? wg_erf_small(x) : r;
}
