// needs: gamma_factor
// x^(a - 1) e^-x / gamma(a), the density of the gamma distribution of shape a. NaN for negative numbers; where x is 0,
// 0 for a > 1, 1 for a = 1, infinite for a < 1, NaN for a = 0. 0 where x is infinite or a is 0.
static inline __attribute__((overloadable)) F wg_gamma_density(F a, F x) {
    M valid = (a >= K(0.0)) & (x >= K(0.0)) & ((a > K(0.0)) | (x > K(0.0))) & ((a < INF) | (x < INF));
    M inside = valid & (a > K(0.0)) & (x > K(0.0)) & (a < INF) & (x < INF);
    F r = inside ? wg_gamma_factor(inside ? a : (F)(K(1.0)), inside ? x : (F)(K(1.0)), 1) : (F)(K(0.0));
    r = ((x == K(0.0)) & (a <= K(1.0))) ? (a == K(1.0) ? (F)(K(1.0)) : INF) : r;
    return valid ? r : NOT_A_NUMBER;
}
