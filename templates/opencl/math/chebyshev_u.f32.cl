// needs: chebyshev_u.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_chebyshev_u(F c, F n, F x) { return TO_F(wg_chebyshev_u(TO_D(c), TO_D(n), TO_D(x))); }
