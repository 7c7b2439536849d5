// needs: digamma, hurwitz, round
// (-1)^(n + 1) n! zeta(n + 1, x), Hurwitz's zeta function (Abramowitz & Stegun 6.4.10); digamma for n = 0, NaN if n
// is no valid order. Infinite at 0 and negative integers.
// Largest error measured: 5 ULP for n <= 20; below 0 relative to the larger of the two sums that are subtracted.
static inline __attribute__((overloadable)) F wg_polygamma(F n, F x) {
    M order = (n >= 1) & (n <= 4096) & (n == wg_round(n)), odd = order & (wg_round(n * 0.5) * 2 != n);
    M n0 = n == 0;
    n = order ? n : (F)(1);
    // n! c^s, c a power of two near e / n: so that neither it nor the powers it is multiplied by overflow early.
    F s = n + 1, c = AS_F((2046 - (AS_I(n * 0.36787944117144233 + 1) >> 52)) << 52), factorial = c * c, i = (F)(2);
    for (M step = i <= n; ANY(step); step = i <= n) {
        factorial = step ? factorial * (i * c) : factorial;
        i = i + 1;
    }
    F r = wg_hurwitz(s, order & !odd, x, c);
    r = factorial * (odd ? r : -r);
    if (ANY(n0)) r = n0 ? wg_digamma(x) : r;
    return (order | n0) ? r : NOT_A_NUMBER;
}
