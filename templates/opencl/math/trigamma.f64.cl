// needs: round, turn
// psi'(x + 1) = psi'(x) - 1 / x^2 up to 10, then the asymptotic series (Abramowitz & Stegun 6.4.12); below 0 by
// reflection (6.4.7). Infinity at 0 and at negative integers.
// Largest error measured: 3.6 ULP.
static inline __attribute__((overloadable)) F wg_trigamma(F x) {
    M minus = x < 0;
    F y = minus ? 1 - x : x, sum = (F)(0);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        M step = y < 10;
        sum = step ? sum + 1 / (y * y) : sum;
        y = step ? y + 1 : y;
    }
    F v = 1 / y, z = v * v;
    F s = (F)(-7.0921568627450980392);
    s = s * z + 1.1666666666666666667;
    s = s * z + -0.25311355311355311355;
    s = s * z + 0.075757575757575757576;
    s = s * z + -0.033333333333333333333;
    s = s * z + 0.023809523809523809524;
    s = s * z + -0.033333333333333333333;
    s = s * z + 0.16666666666666666667;
    F r = sum + (v + z * (0.5 + v * s));
    F sine = wg_sin_turn((x - wg_round(x)) * 0.5), reflection = 3.14159265358979323846 / sine;
    return minus ? reflection * reflection - r : r;
}
