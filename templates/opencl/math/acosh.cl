// needs: log1p, sqrt
// log1p(t + sqrt(2 t + t^2)) with t = x - 1; for large x, log(x) + log 2.
// Largest error measured: 2.00 ULP in float, 2.04 in double.
static inline __attribute__((overloadable)) F wg_acosh(F x) {
    M large = x > AS_F((I)(BIAS + MANTISSA + 2) << MANTISSA);
    F t = x - 1, u = large ? (F)(0) : t;
    F r = wg_log1p(t + wg_sqrt(2 * u + u * u));
    r = large ? r + K(0.69314718055994530942) : r;
    return x < 1 ? NOT_A_NUMBER : r;
}
