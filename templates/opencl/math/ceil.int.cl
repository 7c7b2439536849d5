// needs:
static inline __attribute__((overloadable)) F wg_ceil(F x) { return x; }
