// needs: exp, erf_small, erf_table, lookup
// Where tables are looked up by permutations: x times a polynomial of erf(a) / a around the centre next to a = |x|.
// Elsewhere up to 1 an odd polynomial, and beyond it 1 - e^(-|x| Q(|x|)), where Q is our own minimax fit of
// -log(erfc(a)) / a (2^-31 of erf), the shape of N. Juffa's erff.
// Largest error measured: 1.01 ULP by tables (subnormal x; 0.70 otherwise), 1.18 elsewhere.
static inline __attribute__((overloadable)) F wg_erf(F x) {
#if defined(__AVX512F__)
    x = x < K(-3.94) ? (F)(K(-3.94)) : x;
    x = x > K(3.94) ? (F)(K(3.94)) : x;
    F a = AS_F(AS_I(x) & ~SIGN);
    I j = AS_I(a * K(3.764706) + MAGIC);
    F t = a - wg_lookup(wg_erf_table, j);
    F p = wg_lookup(wg_erf_table + 6, j);
    p = p * t + wg_lookup(wg_erf_table + 5, j);
    p = p * t + wg_lookup(wg_erf_table + 4, j);
    p = p * t + wg_lookup(wg_erf_table + 3, j);
    p = p * t + wg_lookup(wg_erf_table + 2, j);
    return x * wg_lookup(wg_erf_table + 1, j) + x * t * p;
#else
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
#endif
}
