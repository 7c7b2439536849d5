// needs:
static inline __attribute__((overloadable)) F wg_square(F x) { return AS_F((U)(AS_U(x) * AS_U(x))); }
