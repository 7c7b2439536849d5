// needs: bessel_k0e.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_bessel_k0e(F x) { return TO_F(wg_bessel_k0e(TO_D(x))); }
