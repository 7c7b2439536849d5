// needs: exp
// |x| < 0.55: x + x^3 P(x^2), our own minimax fit (2^-30). Beyond: 1 - 2 e / (1 + e) with e = e^(-2|x|).
// Largest error measured: 1.44 ULP.
static inline __attribute__((overloadable)) F wg_tanh(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), z = x * x;
    F p = (F)(K(-0.0062824874));
    p = p * z + K(0.02107778);
    p = p * z + K(-0.053853866);
    p = p * z + K(0.13332602);
    p = p * z + K(-0.3333332);
    F e = wg_exp(-2 * a);
    F big = 1 - (e + e) / (1 + e);
    F r = a < K(0.55) ? a + a * (z * p) : big;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
