// needs: log1p
// log1p(2 a / (1 - a)) / 2
// Largest error measured: 2.07 ULP in float, 2.07 in double.
static inline __attribute__((overloadable)) F wg_atanh(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F r = K(0.5) * wg_log1p((a + a) / (1 - a));
    r = a <= 1 ? r : NOT_A_NUMBER;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
