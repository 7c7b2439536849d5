// needs:
static inline __attribute__((overloadable)) F wg_round(F x) { return x; }
