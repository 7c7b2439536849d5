// needs: hurwitz, floor
// Hurwitz's zeta function zeta(s, x): infinite at s = 1 and where x is 0 or a negative integer, NaN for s < 1, and for
// negative x if s is no integer.
static inline __attribute__((overloadable)) F wg_zeta(F s, F x) {
    M valid = (s > 1) & ((x > 0) | (s == wg_floor(s))), pole = (s == 1) | ((s > 1) & (x <= 0) & (x == wg_floor(x)));
    M odd = wg_floor(s * 0.5) * 2 != s;
    F r = wg_hurwitz(valid ? s : (F)(2), odd, (valid & (x == x) & !pole) ? x : (F)(1), (F)(1));
    return ((x == x) & (s == s)) ? (pole ? INF : (valid ? r : NOT_A_NUMBER)) : NOT_A_NUMBER;
}
