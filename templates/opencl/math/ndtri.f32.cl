// needs: ndtri.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_ndtri(F x) { return TO_F(wg_ndtri(TO_D(x))); }
