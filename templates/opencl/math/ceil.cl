// needs: round
static inline __attribute__((overloadable)) F wg_ceil(F x) {
    F r = wg_round(x);
    r = r < x ? r + 1 : r;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
