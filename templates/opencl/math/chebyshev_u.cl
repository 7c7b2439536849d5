// needs: chebyshev
// Chebyshev's polynomial of the second kind of degree n for c = 0, of the third for c = 1, of the fourth for c = -1.
static inline __attribute__((overloadable)) F wg_chebyshev_u(F c, F n, F x) { return wg_chebyshev((F)(K(2.0)), c, n, x); }
