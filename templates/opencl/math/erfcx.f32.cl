// needs: erfcx.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_erfcx(F x) { return TO_F(wg_erfcx(TO_D(x))); }
