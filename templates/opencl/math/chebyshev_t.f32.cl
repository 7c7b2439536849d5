// needs: chebyshev_t.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_chebyshev_t(F n, F x) { return TO_F(wg_chebyshev_t(TO_D(n), TO_D(x))); }
