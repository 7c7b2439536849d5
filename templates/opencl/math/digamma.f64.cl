// needs: log, round, turn
// psi(x + 1) = psi(x) + 1 / x up to 10, then the asymptotic series (Abramowitz & Stegun 6.3.18); below 0 by reflection
// (6.3.7). Errors are absolute (a few 1e-16) near its zeros. -infinity at 0 and NaN at negative integers, as PyTorch.
// Largest error measured: 3.4e-15 relative where |digamma| > 0.3.
static inline __attribute__((overloadable)) F wg_digamma(F x) {
    M minus = x < 0;
    F y = minus ? 1 - x : x, sum = (F)(0);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        M step = y < 10;
        sum = step ? sum + 1 / y : sum;
        y = step ? y + 1 : y;
    }
    F v = 1 / y, z = v * v;
    F s = (F)(-0.44325980392156862745);
    s = s * z + 0.083333333333333333333;
    s = s * z + -0.021092796092796092796;
    s = s * z + 0.0075757575757575757576;
    s = s * z + -0.0041666666666666666667;
    s = s * z + 0.0039682539682539682540;
    s = s * z + -0.0083333333333333333333;
    s = s * z + 0.083333333333333333333;
    F r = (wg_log(y) - (v * 0.5 + z * s)) - sum;
    F f = x - wg_round(x), reflection = 3.14159265358979323846 * (wg_cos_turn(f * 0.5) / wg_sin_turn(f * 0.5));
    r = minus ? ((f == 0) ? NOT_A_NUMBER : r - reflection) : r;
    F pole = AS_F(AS_I(INF) | ((AS_I(x) & SIGN) ^ SIGN));
    return x == 0 ? pole : r;
}
