// needs:
static inline __attribute__((overloadable)) M wg_signbit(F x) { return x < (F)(0); }
