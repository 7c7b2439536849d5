// needs: erfc_ratio, exp
// erfc(a) for a >= 0: e^(-a^2) times wg_erfc_ratio. The rounding error of a^2 (Dekker) corrects the exponential.
static inline __attribute__((overloadable)) F wg_erfc_positive(F a) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    a = a > K(30.0) ? (F)(K(30.0)) : a;
    F h = AS_F(AS_I(a) & ((I)(-1) << 27)), l = a - h, s = a * a, e = ((h * h - s) + 2 * h * l) + l * l;
    F r = wg_exp(-s) * wg_erfc_ratio(a);
    return r - r * e;
}
