// needs: trunc
// Gegenbauer's polynomial C^a of degree n (truncated): n C(n) = 2 (n + a - 1) x C(n - 1) - (n + 2 a - 2) C(n - 2)
// (22.7.3 of Abramowitz & Stegun). With a = 1/2 it is Legendre's. Infinite values end the loop. 0 for n < 0, NaN for
// n above a million.
static inline __attribute__((overloadable)) F wg_gegenbauer(F a, F n, F x) {
    M valid = (n == n) & (n <= K(1e6));
    n = valid ? wg_trunc(n) : (F)(K(-1.0));
    F k = (F)(K(1.0)), before = (F)(K(1.0)), r = 2 * a * x;
    for (M step = k < n; ANY(step); step = (k < n) & (AS_F(AS_I(r) & ~SIGN) < INF)) {
        k = k + 1;
        F next = (2 * (k + a - 1) * x * r - (k + 2 * a - 2) * before) / k;
        before = step ? r : before;
        r = step ? next : r;
    }
    r = n < 1 ? (n < 0 ? (F)(K(0.0)) : (F)(K(1.0))) : r;
    return valid ? r : NOT_A_NUMBER;
}
