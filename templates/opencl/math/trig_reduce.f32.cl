// needs: rem_pio2
// Split x = q pi/2 + r + low with |r| about pi/4 at most (Cody & Waite). There are three ranges of |x|:
// - Up to 2^15, if the compiler fuses products with sums: pi/2 is the sum of three parts. Subtracting multiples of the
//   first one is exact, and r has an error of half an ULP.
// - Up to 2^28: in double, with pi/2 as the sum of two parts of which the first has 25 bits. low is 0.
// - Larger: a loop over lanes, which rarely runs, calls rem_pio2.
// Return r of the second and third range, and store q modulo 4.
static inline __attribute__((overloadable)) F wg_trig_reduce_far(F x, I *q) {
    D d = TO_D(x), t = d * 6.36619772367581382433e-01 + 6755399441055744.0, n = t - 6755399441055744.0;
    D r = (d - n * 1.57079631090164184570) - n * 1.58932547735281966916e-08;
    F result = TO_F(r);
    *q = TO_I(AS_L(t) & 3);
    M large = ((x > K(268435456.0)) | (x < K(-268435456.0))) & (x < INF) & (x > -INF);
    if (ANY(large)) {
#pragma clang loop unroll(disable)
        for (int i = 0; i < WIDTH; i++) {
            if (!LANE(large, i)) continue;
            double high, rest;
            LANE(*q, i) = wg_rem_pio2(LANE(x, i), &high, &rest);
            LANE(result, i) = (float)high;
        }
    }
    return result;
}
// Return r, and store low and q, of which callers read the lowest two bits.
static inline __attribute__((overloadable)) F wg_trig_reduce(F x, F *low, I *q) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(FP_FAST_FMAF)
    F t = x * K(0.63661977) + MAGIC, n = t - MAGIC;
    F r = (x - n * K(1.5707964)) - n * K(-4.371139e-08);
    *q = AS_I(t);
    *low = n * K(1.7151245e-15);
    M far = (x > K(32768.0)) | (x < K(-32768.0));
    if (ANY(far)) {
        I other;
        F result = wg_trig_reduce_far(x, &other);
        r = far ? result : r;
        *q = far ? other : *q;
        *low = far ? (F)(0) : *low;
    }
    return r;
#else
    *low = (F)(0);
    return wg_trig_reduce_far(x, q);
#endif
}
