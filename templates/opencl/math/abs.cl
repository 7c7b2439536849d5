// needs:
static inline __attribute__((overloadable)) F wg_abs(F x) { return AS_F(AS_I(x) & ~SIGN); }
