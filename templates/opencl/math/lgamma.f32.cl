// needs: lgamma.f64
// Largest error measured: 0.5 ULP but near the zeros below 0.
static inline __attribute__((overloadable)) F wg_lgamma(F x) { return TO_F(wg_lgamma(TO_D(x))); }
