// needs: exp_scaled
// Largest error measured: 0.92 ULP in float, 0.93 in double.
static inline __attribute__((overloadable)) F wg_exp(F x) { return wg_exp_scaled(x, (I)(0)); }
