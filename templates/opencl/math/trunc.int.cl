// needs:
static inline __attribute__((overloadable)) F wg_trunc(F x) { return x; }
