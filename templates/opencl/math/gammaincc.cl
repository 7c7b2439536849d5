// needs: gamma_ratio
// The regularised upper incomplete gamma function. 1 where x is 0 or a is infinite, 0 where a is 0 or x is
// infinite, NaN where both are 0 or both infinite, and for negative numbers.
static inline __attribute__((overloadable)) F wg_gammaincc(F a, F x) {
    M valid = (a >= K(0.0)) & (x >= K(0.0)) & ((a > K(0.0)) | (x > K(0.0))) & ((a < INF) | (x < INF));
    M first = (x == K(0.0)) | (a == INF), second = (a == K(0.0)) | (x == INF), inside = valid & !(first | second);
    F r = wg_gamma_ratio(inside ? a : (F)(K(1.0)), inside ? x : (F)(K(1.0)), 1);
    r = first ? (F)(K(1.0)) : (second ? (F)(K(0.0)) : r);
    return valid ? r : NOT_A_NUMBER;
}
