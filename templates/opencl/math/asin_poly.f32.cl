// needs:
// (asin(s) - s) / s for z = s^2 in [0, 1/4]: our own minimax fit. The error of asin(s) is 2^-31.6 at most.
static inline __attribute__((overloadable)) F wg_asin_poly(F z) {
    F p = (F)(K(0.037590653));
    p = p * z + K(0.014385462);
    p = p * z + K(0.031821862);
    p = p * z + K(0.04451525);
    p = p * z + K(0.07500513);
    p = p * z + K(0.1666666);
    return z * p;
}
