// needs: lgamma.f64
static inline __attribute__((overloadable)) F wg_lgamma(F x) { return TO_F(wg_lgamma(TO_D(x))); }
