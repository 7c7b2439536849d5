// needs:
static inline __attribute__((overloadable)) F wg_reciprocal(F x) { return 1 / x; }
