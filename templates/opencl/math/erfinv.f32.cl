// needs: erfinv_guess
// Largest error measured: 2.78 ULP.
static inline __attribute__((overloadable)) F wg_erfinv(F x) {
    F r = wg_erfinv_guess(x);
    F a = AS_F(AS_I(x) & ~SIGN);
    F end = a == 1 ? AS_F(AS_I(INF) | (AS_I(x) & SIGN)) : NOT_A_NUMBER;
    return a < 1 ? r : end;
}
