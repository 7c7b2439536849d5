// needs:
static inline __attribute__((overloadable)) M wg_isnan(F x) { return x != x; }
