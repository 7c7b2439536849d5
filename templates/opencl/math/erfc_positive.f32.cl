// needs: exp
// erfc(a) for a >= 0: e^(-a^2) P(q) / (1 + 2 a) with q = (a - 4) / (a + 4), the form of Shepherd & Laframboise (1981);
// P our own minimax fit (2^-24.3). The rounding error of a^2 (Dekker) corrects the exponential.
static inline __attribute__((overloadable)) F wg_erfc_positive(F a) {
#pragma clang fp contract(off)
    a = a > K(30.0) ? (F)(K(30.0)) : a;
    F h = AS_F(AS_I(a) & ((I)(-1) << 12)), l = a - h, s = a * a, e = ((h * h - s) + 2 * h * l) + l * l;
    F q = (a - 4) / (a + 4);
    F x = wg_exp(-s);
    {
#pragma clang fp contract(fast)
        F p = (F)(K(-0.00025024093));
        p = p * q + K(-0.00036513768);
        p = p * q + K(0.0050865514);
        p = p * q + K(-0.016619096);
        p = p * q + K(0.037136994);
        p = p * q + K(-0.06611653);
        p = p * q + K(0.09374128);
        p = p * q + K(-0.10108864);
        p = p * q + K(0.06809608);
        p = p * q + K(0.015383876);
        p = p * q + K(-0.1396211);
        p = p * q + K(1.232995);
        F r = x * (p / (1 + 2 * a));
        return r - r * e;
    }
}
