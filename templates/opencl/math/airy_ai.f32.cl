// needs: airy_ai.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_airy_ai(F x) { return TO_F(wg_airy_ai(TO_D(x))); }
