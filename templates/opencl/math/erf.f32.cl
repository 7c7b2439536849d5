// needs: exp
// |x| < 1: x P(x^2). Beyond: 1 - e^(-|x| Q(|x|)), where Q fits -log(erfc(a)) / a (the shape of N. Juffa's erff).
// Both polynomials are our own minimax fits (2^-29 and 2^-31 of erf).
static inline __attribute__((overloadable)) F wg_erf(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), z = x * x;
    a = a > 4 ? (F)(4) : a;
    F p = (F)(K(7.889119e-05));
    p = p * z + K(-0.00080208457);
    p = p * z + K(0.0051895366);
    p = p * z + K(-0.026854446);
    p = p * z + K(0.112836);
    p = p * z + K(-0.37612626);
    p = p * z + K(0.12837917);
    F q = (F)(K(1.3961148e-05));
    q = q * a + K(-0.000350574);
    q = q * a + K(0.0037573848);
    q = q * a + K(-0.024009837);
    q = q * a + K(0.106530555);
    q = q * a + K(0.6349698);
    q = q * a + K(1.1286943);
    F big = 1 - wg_exp(-(a * q));
    big = AS_F(AS_I(big) | (AS_I(x) & SIGN));
    return a < 1 ? x + x * p : big;
}
