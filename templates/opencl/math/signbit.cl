// needs:
static inline __attribute__((overloadable)) M wg_signbit(F x) { return AS_I(x) < (I)(0); }
