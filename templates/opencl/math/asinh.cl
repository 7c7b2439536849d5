// needs: log1p, sqrt
// log1p(a + a^2 / (1 + sqrt(1 + a^2))); for large a, log(a) + log 2.
// Largest error measured: 1.73 ULP in float, 1.71 in double.
static inline __attribute__((overloadable)) F wg_asinh(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    M large = a > AS_F((I)(BIAS + MANTISSA + 2) << MANTISSA);
    F b = large ? (F)(0) : a, s = b * b;
    F r = wg_log1p(large ? a : a + s / (1 + wg_sqrt(1 + s)));
    r = large ? r + K(0.69314718055994530942) : r;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
