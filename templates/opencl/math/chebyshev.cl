// needs: trunc
// The polynomial of degree n (truncated) with p(1) = slope x - shift and p(n) = 2 x p(n - 1) - p(n - 2): Chebyshev's
// of the four kinds (22.7.4 of Abramowitz & Stegun). Infinite values end the loop. 0 for n < 0, NaN for n above a
// million.
static inline __attribute__((overloadable)) F wg_chebyshev(F slope, F shift, F n, F x) {
    M valid = (n == n) & (n <= K(1e6));
    n = valid ? wg_trunc(n) : (F)(K(-1.0));
    F k = (F)(K(1.0)), before = (F)(K(1.0)), r = slope * x - shift;
    for (M step = k < n; ANY(step); step = (k < n) & (AS_F(AS_I(r) & ~SIGN) < INF)) {
        k = k + 1;
        F next = 2 * x * r - before;
        before = step ? r : before;
        r = step ? next : r;
    }
    r = n < 1 ? (n < 0 ? (F)(K(0.0)) : (F)(K(1.0))) : r;
    return valid ? r : NOT_A_NUMBER;
}
