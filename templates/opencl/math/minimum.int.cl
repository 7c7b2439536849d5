// needs:
static inline __attribute__((overloadable)) F wg_minimum(F x, F y) { return x < y ? x : y; }
