// needs: gammaincc.f64
// In double: the error is half an ULP.
static inline __attribute__((overloadable)) F wg_gammaincc(F a, F x) { return TO_F(wg_gammaincc(TO_D(a), TO_D(x))); }
