// needs: scale
// exp(x) * 2^k with no intermediate overflow. Cody & Waite: n = round(x / ln 2) by adding 1.5 * 2^23, r = x - n ln 2 in
// two parts, e^r = 1 + r + r^2 P(r) with P our own minimax fit (relative error 2^-28). NaN passes through the clamps
// because every test on it is false.
static inline __attribute__((overloadable)) F wg_exp_scaled(F x, I k) {
    x = x < K(-110.0) ? (F)(K(-110.0)) : x;
    x = x > K(100.0) ? (F)(K(100.0)) : x;
    F t = x * K(1.44269504088896341) + MAGIC, n = t - MAGIC;
    I i = AS_I(t) - AS_I((F)(MAGIC)) + k;
    F r = (x - n * K(0.693359375)) - n * K(-2.12194440e-4);
    F p = (F)(K(0.0013950702));
    p = p * r + K(0.008368954);
    p = p * r + K(0.041666202);
    p = p * r + K(0.16666518);
    p = p * r + K(0.5);
    p = p * r + 1;
    return wg_scale(p * r + 1, i);
}
