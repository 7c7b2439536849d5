// needs: sqrt
// Largest error measured: 1.48 ULP in float, 1.50 in double.
static inline __attribute__((overloadable)) F wg_rsqrt(F x) { return 1 / wg_sqrt(x); }
