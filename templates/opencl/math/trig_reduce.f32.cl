// needs: rem_pio2
// x = q pi/2 + r with |r| <= pi/4 about. In double, with pi/2 in two parts of which the first has 25 bits (Cody &
// Waite): right for |x| < 2^28. Larger numbers, lane by lane in a cold loop, by rem_pio2.
static inline __attribute__((overloadable)) F wg_trig_reduce(F x, F *low, I *q) {
    D d = TO_D(x), t = d * 6.36619772367581382433e-01 + 6755399441055744.0, n = t - 6755399441055744.0;
    D r = (d - n * 1.57079631090164184570) - n * 1.58932547735281966916e-08;
    F result = TO_F(r);
    *q = TO_I(AS_L(t) & 3);
    *low = (F)(0);
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
