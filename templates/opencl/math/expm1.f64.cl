// needs:
// e^x - 1 = 2^n ((e^r - 1) + (1 - 2^-n)), where e^r - 1 = r + r^2 P(r), P our own minimax fit (relative error 2^-62).
// Largest error measured: 1.81 ULP.
static inline __attribute__((overloadable)) F wg_expm1(F x) {
    F a = x < -45.0 ? (F)(-45.0) : x;
    a = a > 720.0 ? (F)(720.0) : a;
    F t = a * 1.44269504088896340736 + MAGIC, n = t - MAGIC;
    I i = AS_I(t) - AS_I((F)(MAGIC)), h = i >> 1, most = i > 120 ? (I)(120) : i;
    F r = (a - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    F p = (F)(2.0924563681140205e-09);
    p = p * r + 2.510914751918637e-08;
    p = p * r + 2.7557242356578564e-07;
    p = p * r + 2.755724391131049e-06;
    p = p * r + 2.480158736105145e-05;
    p = p * r + 0.0001984126988640145;
    p = p * r + 0.0013888888888866568;
    p = p * r + 0.008333333333321532;
    p = p * r + 0.0416666666666667;
    p = p * r + 0.16666666666666677;
    p = p * r + 0.5;
    F y = (r + (r * r) * p) + (1 - AS_F((1023 - most) << 52));
    y = (y * AS_F((h + 1023) << 52)) * AS_F((i - h + 1023) << 52);
    return x == 0 ? x : y;
}
