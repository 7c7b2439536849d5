// needs:
// Largest error measured: 0.50 ULP in float, 0.50 in double.
static inline __attribute__((overloadable)) F wg_reciprocal(F x) { return 1 / x; }
