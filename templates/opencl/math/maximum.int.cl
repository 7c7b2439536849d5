// needs:
static inline __attribute__((overloadable)) F wg_maximum(F x, F y) { return x > y ? x : y; }
