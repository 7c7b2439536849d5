// needs: round
static inline __attribute__((overloadable)) F wg_trunc(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), r = wg_round(a);
    r = r > a ? r - 1 : r;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
