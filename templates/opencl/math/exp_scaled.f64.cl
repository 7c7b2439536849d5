// needs:
// exp(x) * 2^k as in the 32-bit form (Cody & Waite); P is our own minimax fit (relative error 2^-58).
static inline __attribute__((overloadable)) F wg_exp_scaled(F x, I k) {
    x = x < -750.0 ? (F)(-750.0) : x;
    x = x > 720.0 ? (F)(720.0) : x;
    F t = x * 1.44269504088896340736 + MAGIC, n = t - MAGIC;
    I i = AS_I(t) - AS_I((F)(MAGIC)) + k;
    F r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    F p = (F)(2.5118063280119242e-08);
    p = p * r + 2.7631410727246063e-07;
    p = p * r + 2.7557215596269358e-06;
    p = p * r + 2.480148960459021e-05;
    p = p * r + 0.00019841269918268218;
    p = p * r + 0.0013888888947310716;
    p = p * r + 0.008333333333306743;
    p = p * r + 0.04166666666651443;
    p = p * r + 0.166666666666667;
    p = p * r + 0.5000000000000013;
    p = p * r + 1;
    F y = p * r + 1;
    I h = i >> 1;
    return (y * AS_F((h + 1023) << 52)) * AS_F((i - h + 1023) << 52);
}
