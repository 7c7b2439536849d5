// needs:
// erf(x) for |x| < 1: x + x P(x^2), our own minimax fit (2^-29).
static inline __attribute__((overloadable)) F wg_erf_small(F x) {
    F z = x * x;
    F p = (F)(K(7.889119e-05));
    p = p * z + K(-0.00080208457);
    p = p * z + K(0.0051895366);
    p = p * z + K(-0.026854446);
    p = p * z + K(0.112836);
    p = p * z + K(-0.37612626);
    p = p * z + K(0.12837917);
    return x + x * p;
}
