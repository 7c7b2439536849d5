// needs:
static inline __attribute__((overloadable)) F wg_square(F x) { return x * x; }
