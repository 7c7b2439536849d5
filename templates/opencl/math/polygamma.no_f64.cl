// needs: digamma, exp, hurwitz, lgamma, log, round
// polygamma.f64.cl for devices without double: (-1)^(n + 1) n! zeta(n + 1, x), and what that file says of n and x < 0.
// Largest error measured: n + 4 times 7 units of 2^-24, below 0 relative to the larger of the subtracted sums.

static inline __attribute__((overloadable)) F wg_polygamma(F n, F x) {
    M minus = x < 0, order = (n >= 1) & (n <= 4096) & (n == wg_round(n)), odd = order & (wg_round(n * 0.5f) * 2 != n);
    M n0 = n == 0;
    n = order ? n : (F)(1);
    M low = n <= 30;
    F s = n + 1, f = minus ? x - wg_round(x) : x;
    // Up to order 30, n! c^s, c a power of two near e / n, so that products with c are exact. Higher orders have
    // factorials beyond float, so there c is the reciprocal of the smallest summand's base, and n! c^s comes from its
    // logarithm, whose rounding costs n units in the last place.
    F base = AS_F(AS_I(f) & ~SIGN), i = (F)(2);
    base = base < 1e-37f ? (F)(1e-37f) : base > 1e37f ? (F)(1e37f) : base;
    F c = low ? AS_F((254 - (AS_I(n * 0.36787944f + 1) >> 23)) << 23) : 1 / base, factorial = c * c;
    for (M step = low & (i <= n); ANY(step); step = low & (i <= n)) {
        factorial = step ? factorial * (i * c) : factorial;
        i = i + 1;
    }
    if (ANY(!low)) factorial = low ? factorial : wg_exp(wg_lgamma(n + 1) - s * wg_log(base));
    F r = wg_hurwitz(s, order & !odd, x, c);
    r = factorial * (odd ? r : -r);
    if (ANY(n0)) r = n0 ? wg_digamma(x) : r;
    return (order | n0) ? r : NOT_A_NUMBER;
}
