// needs:
// e^(a^2) erfc(a) for 1/2 <= a <= 10.5: P(q) / (1 + 2 a) with q = (a - 4) / (a + 4), the form of Shepherd & Laframboise
// (1981); P our own minimax fit (2^-28).
static inline __attribute__((overloadable)) F wg_erfc_ratio(F a) {
#pragma OPENCL FP_CONTRACT ON
#pragma clang fp contract(fast)
    F q = (a - 4) / (a + 4);
    F p = (F)(K(-4.5230976e-05));
    p = p * q + K(0.005189895);
    p = p * q + K(-0.016599659);
    p = p * q + K(0.037024394);
    p = p * q + K(-0.06624449);
    p = p * q + K(0.093764655);
    p = p * q + K(-0.101047054);
    p = p * q + K(0.06809459);
    p = p * q + K(0.015379937);
    p = p * q + K(-0.13962106);
    p = p * q + K(1.2329952);
    return p / (1 + 2 * a);
}
