// needs: bessel_j0.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_bessel_j0(F x) { return TO_F(wg_bessel_j0(TO_D(x))); }
