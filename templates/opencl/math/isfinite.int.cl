// needs:
static inline __attribute__((overloadable)) M wg_isfinite(F x) { return (x & (F)(0)) == (F)(0); }
