// needs: chebyshev
// Chebyshev's polynomial of the first kind of degree n.
static inline __attribute__((overloadable)) F wg_chebyshev_t(F n, F x) { return wg_chebyshev((F)(K(1.0)), (F)(K(0.0)), n, x); }
