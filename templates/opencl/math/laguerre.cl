// needs: trunc
// Laguerre's polynomial L^a of degree n (truncated): n L(n) = (2 n - 1 + a - x) L(n - 1) - (n - 1 + a) L(n - 2)
// (22.7.12 of Abramowitz & Stegun). Infinite values end the loop. 0 for n < 0, NaN for n above a million.
static inline __attribute__((overloadable)) F wg_laguerre(F a, F n, F x) {
    M valid = (n == n) & (n <= K(1e6));
    n = valid ? wg_trunc(n) : (F)(K(-1.0));
    F k = (F)(K(1.0)), before = (F)(K(1.0)), r = 1 + a - x;
    for (M step = k < n; ANY(step); step = (k < n) & (AS_F(AS_I(r) & ~SIGN) < INF)) {
        k = k + 1;
        F next = ((2 * k - 1 + a - x) * r - (k - 1 + a) * before) / k;
        before = step ? r : before;
        r = step ? next : r;
    }
    r = n < 1 ? (n < 0 ? (F)(K(0.0)) : (F)(K(1.0))) : r;
    return valid ? r : NOT_A_NUMBER;
}
