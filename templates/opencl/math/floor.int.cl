// needs:
static inline __attribute__((overloadable)) F wg_floor(F x) { return x; }
