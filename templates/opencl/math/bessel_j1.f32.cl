// needs: bessel_j1.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_bessel_j1(F x) { return TO_F(wg_bessel_j1(TO_D(x))); }
