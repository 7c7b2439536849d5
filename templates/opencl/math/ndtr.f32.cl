// needs: ndtr.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_ndtr(F x) { return TO_F(wg_ndtr(TO_D(x))); }
