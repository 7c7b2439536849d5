// needs: exp
// erfc(a) for a >= 1/2: e^(-a^2) P(q) / (1 + 2 a) with q = (a - 4) / (a + 4), the form of Shepherd & Laframboise
// (1981); P our own minimax fit (2^-28). The rounding error of a^2 (Dekker) corrects the exponential.
static inline __attribute__((overloadable)) F wg_erfc_positive(F a) {
#pragma clang fp contract(off)
    a = a > K(10.5) ? (F)(K(10.5)) : a;
    F h = AS_F(AS_I(a) & ((I)(-1) << 12)), l = a - h, s = a * a, e = ((h * h - s) + 2 * h * l) + l * l;
    F q = (a - 4) / (a + 4);
    F x = wg_exp(-s);
    {
#pragma clang fp contract(fast)
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
        F r = x * (p / (1 + 2 * a));
        return r - r * e;
    }
}
