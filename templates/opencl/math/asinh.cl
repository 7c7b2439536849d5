// needs: log1p, sqrt
// log1p(a + a^2 / (1 + sqrt(1 + a^2))); from 2^(MANTISSA + 2) on, log1p(a) + log 2, because a^2 could overflow.
// Largest error measured: 1.73 ULP in float, 1.71 in double.
static inline __attribute__((overloadable)) F wg_asinh(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    M is_large = a > AS_F((I)(BIAS + MANTISSA + 2) << MANTISSA);
    F a_or_0 = is_large ? (F)(0) : a, square = a_or_0 * a_or_0;
    F r = wg_log1p(is_large ? a : a + square / (1 + wg_sqrt(1 + square)));
    r = is_large ? r + K(0.69314718055994530942) : r;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
