// needs: pow, round
// The sum of ((q + k) c)^-s over k = 0, 1, ... for q > 0 by the Euler-Maclaurin formula (25.11.7 of the NIST Digital
// Library of Mathematical Functions with 10 Bernoulli numbers), the first terms one by one, until they no longer
// matter. The constants are the ratios of successive B(2j) / (2j)!, B the Bernoulli numbers.
static inline __attribute__((overloadable)) F wg_zeta_sum(F s, F q, F c) {
    F sum = (F)(0), term = (F)(1), far = 8 + s;
    for (M step = q < far; ANY(step); step = (q < far) & (term > sum * 1e-18)) {
        term = step ? wg_pow(q * c, -s) : term;
        sum = step ? sum + term : sum;
        q = step ? q + 1 : q;
    }
    F v = 1 / q, z = v * v;
    F t = 1 + (s + 17) * (s + 18) * z * -0.02533022338183393190574;
    t = 1 + (s + 15) * (s + 16) * z * (-0.02533000550403748750736 * t);
    t = 1 + (s + 13) * (s + 14) * z * (-0.02532913165266106442577 * t);
    t = 1 + (s + 11) * (s + 12) * z * (-0.0253256150506512301013 * t);
    t = 1 + (s + 9) * (s + 10) * z * (-0.02531135531135531135531 * t);
    t = 1 + (s + 7) * (s + 8) * z * (-0.02525252525252525252525 * t);
    t = 1 + (s + 5) * (s + 6) * z * (-0.025 * t);
    t = 1 + (s + 3) * (s + 4) * z * (-0.02380952380952380952381 * t);
    t = 1 + (s + 1) * (s + 2) * z * (-0.01666666666666666666667 * t);
    F rest = wg_pow(q * c, 1 - s) / c * (1 / (s - 1) + v * (0.5 + s * v * (0.08333333333333333333333 * t)));
    return ((q == INF) | (q < far)) ? sum : sum + rest;
}

// Hurwitz's zeta function, the sum of ((x + k) c)^-s over k = 0, 1, ...; for x < 0 s is an integer, odd or not. Below 0,
// sum ((x + k) c)^-s over all integers k, with f = x - round(x) in place of x, and subtract the terms before k = 0, which
// are a zeta function of 1 - x. Infinite at 0 and negative integers.
static inline __attribute__((overloadable)) F wg_hurwitz(F s, M odd, F x, F c) {
    M minus = x < 0;
    F f = minus ? x - wg_round(x) : x;
    F r = wg_zeta_sum(s, minus ? 1 + f : AS_F(AS_I(x) & ~SIGN), c);
    if (ANY(minus)) {
        F before = wg_zeta_sum(s, minus ? 1 - f : (F)(1), c) - wg_zeta_sum(s, minus ? 1 - x : (F)(1), c);
        F pole = wg_pow(f * c, -s) + r;
        r = minus ? (odd ? pole - before : pole + before) : r;
    }
    return r;
}
