// needs: sqrt
static inline __attribute__((overloadable)) F wg_rsqrt(F x) { return 1 / wg_sqrt(x); }
