// needs: trigamma.f64
// Largest error measured: 0.5 ULP.
static inline __attribute__((overloadable)) F wg_trigamma(F x) { return TO_F(wg_trigamma(TO_D(x))); }
