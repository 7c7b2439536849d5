// needs: scale
// 2^x = 2^n (1 + r P(r)), n = round(x), r = x - n exact; P our own minimax fit (relative error 2^-29).
// Largest error measured: 0.95 ULP.
static inline __attribute__((overloadable)) F wg_exp2(F x) {
    x = x < K(-155.0) ? (F)(K(-155.0)) : x;
    x = x > K(130.0) ? (F)(K(130.0)) : x;
    F t = x + MAGIC, n = t - MAGIC, r = x - n;
    F p = (F)(K(0.00015476464));
    p = p * r + K(0.0013400404);
    p = p * r + K(0.009618003);
    p = p * r + K(0.055503275);
    p = p * r + K(0.2402265);
    p = p * r + K(0.6931472);
    return wg_scale(1 + r * p, AS_I(t) - AS_I((F)(MAGIC)));
}
