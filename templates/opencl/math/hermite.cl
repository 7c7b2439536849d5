// needs: trunc
// Hermite's polynomial of degree n (truncated): H(n) = c (x H(n - 1) - (n - 1) H(n - 2)) (22.7.13 and 22.7.14 of
// Abramowitz & Stegun); c is 2 for the physicists' and 1 for the probabilists'. Infinite values end the loop. 0 for n
// < 0, NaN for n above a million.
static inline __attribute__((overloadable)) F wg_hermite(F c, F n, F x) {
    M valid = (n == n) & (n <= K(1e6));
    n = valid ? wg_trunc(n) : (F)(K(-1.0));
    F k = (F)(K(1.0)), before = (F)(K(1.0)), r = c * x;
    for (M step = k < n; ANY(step); step = (k < n) & (AS_F(AS_I(r) & ~SIGN) < INF)) {
        k = k + 1;
        F next = c * (x * r - (k - 1) * before);
        before = step ? r : before;
        r = step ? next : r;
    }
    r = n < 1 ? (n < 0 ? (F)(K(0.0)) : (F)(K(1.0))) : r;
    return valid ? r : NOT_A_NUMBER;
}
