// needs: exp, erf_small
// Beyond 1: 1 - e^(-|x| Q(|x|)), where Q is our own minimax fit of -log(erfc(a)) / a (2^-31 of erf), the shape of
// N. Juffa's erff.
// Largest error measured: 1.18 ULP.
static inline __attribute__((overloadable)) F wg_erf(F x) {
    F a = AS_F(AS_I(x) & ~SIGN);
    F b = a > 4 ? (F)(4) : a;
    F q = (F)(K(1.3961148e-05));
    q = q * b + K(-0.000350574);
    q = q * b + K(0.0037573848);
    q = q * b + K(-0.024009837);
    q = q * b + K(0.106530555);
    q = q * b + K(0.6349698);
    q = q * b + K(1.1286943);
    F big = 1 - wg_exp(-(b * q));
    big = AS_F(AS_I(big) | (AS_I(x) & SIGN));
    return a < 1 ? wg_erf_small(x) : big;
}
