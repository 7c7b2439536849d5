// needs:
static inline __attribute__((overloadable)) F wg_copysign(F x, F y) {
    return AS_F((AS_I(x) & ~SIGN) | (AS_I(y) & SIGN));
}
