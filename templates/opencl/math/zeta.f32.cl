// needs: zeta.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_zeta(F s, F x) { return TO_F(wg_zeta(TO_D(s), TO_D(x))); }
