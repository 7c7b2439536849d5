// needs: erfc_ratio, exp
// erfc(a) for a >= 1/2: e^(-a^2) times wg_erfc_ratio. The rounding error of a^2 (Dekker) corrects the exponential.
static inline __attribute__((overloadable)) F wg_erfc_positive(F a) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    a = a > K(10.5) ? (F)(K(10.5)) : a;
    F h = AS_F(AS_I(a) & ((I)(-1) << 12)), l = a - h, s = a * a, e = ((h * h - s) + 2 * h * l) + l * l;
    F r = wg_exp(-s) * wg_erfc_ratio(a);
    return r - r * e;
}
