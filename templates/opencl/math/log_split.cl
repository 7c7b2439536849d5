// needs:
// Return f, and store e, of x = 2^e (1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1]. x is above 0, subnormal x included.
static inline __attribute__((overloadable)) F wg_log_split(F x, F *e) {
    M tiny = x < AS_F((I)(1) << MANTISSA);
    F y = tiny ? x * AS_F((I)(BIAS + 64) << MANTISSA) : x;
    I b = AS_I(y) - AS_I((F)(K(0.70710678118654752440)));
    I n = b >> MANTISSA;
    *e = INT_TO_F(n) - (tiny ? (F)(64) : (F)(0));
    return AS_F(AS_I(y) - (n << MANTISSA)) - 1;
}
// Return `result`, the logarithm of x to any base if 0 < x < inf; else -inf for 0, inf for inf, NaN for x < 0 and NaN.
static inline __attribute__((overloadable)) F wg_log_ends(F x, F result) {
    result = x < INF ? result : x;
    F low = x == 0 ? -INF : NOT_A_NUMBER;
    return x > 0 ? result : low;
}
