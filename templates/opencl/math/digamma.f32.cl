// needs: digamma.f64
// Largest error measured: 0.5 ULP where |digamma| > 0.3.
static inline __attribute__((overloadable)) F wg_digamma(F x) { return TO_F(wg_digamma(TO_D(x))); }
