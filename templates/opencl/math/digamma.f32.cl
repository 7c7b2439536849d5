// needs: digamma.f64
static inline __attribute__((overloadable)) F wg_digamma(F x) { return TO_F(wg_digamma(TO_D(x))); }
