// needs: atan_ratio
// Largest error measured: 1.85 ULP in float, 1.79 in double.
static inline __attribute__((overloadable)) F wg_atan(F x) {
    F r = wg_atan_ratio(AS_F(AS_I(x) & ~SIGN), (F)(1));
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
