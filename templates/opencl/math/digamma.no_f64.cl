// needs: log, round, turn
// digamma.f64.cl for devices without double. The sum of the reciprocals cancels most of the logarithm, so it is added in
// two floats (Fast2Sum, Dekker 1971): errors are absolute (4e-7) near the zeros.
// Largest error measured: 6 ULP where |digamma| > 0.5; below 0 of the larger of the two terms that are subtracted.
static inline __attribute__((overloadable)) F wg_digamma(F x) {
    M minus = x < 0;
    F y = minus ? 1 - x : x, sum = (F)(0), error = (F)(0);
#pragma unroll
    for (int i = 0; i < 6; i++) {
        M step = y < 6;
        F term = 1 / y, high = sum > term ? sum : term, low = sum > term ? term : sum, next = sum + term;
        error = step ? error + (low - (next - high)) : error;
        sum = step ? next : sum;
        y = step ? y + 1 : y;
    }
    F v = 1 / y, z = v * v;
    F s = (F)(0.0075757575757575757576f);
    s = s * z + -0.0041666666666666666667f;
    s = s * z + 0.0039682539682539682540f;
    s = s * z + -0.0083333333333333333333f;
    s = s * z + 0.083333333333333333333f;
    F r = (wg_log(y) - sum) - (v * 0.5f + (z * s + error));
    F f = x - wg_round(x), reflection = 3.14159265358979323846f * (wg_cos_turn(f * 0.5f) / wg_sin_turn(f * 0.5f));
    r = minus ? ((f == 0) ? NOT_A_NUMBER : r - reflection) : r;
    F pole = AS_F(AS_I(INF) | ((AS_I(x) & SIGN) ^ SIGN));
    return x == 0 ? pole : r;
}
