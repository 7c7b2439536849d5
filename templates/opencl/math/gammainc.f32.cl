// needs: gammainc.f64
// In double: the error is half an ULP.
static inline __attribute__((overloadable)) F wg_gammainc(F a, F x) { return TO_F(wg_gammainc(TO_D(a), TO_D(x))); }
