// needs: exp_scaled
// e^|x| / 2 + 1 / (2 e^|x|), with the factor 1/2 inside the exponential, so that it only overflows if the result does.
// Largest error measured: 1.32 ULP in float, 1.33 in double.
static inline __attribute__((overloadable)) F wg_cosh(F x) {
    F e = wg_exp_scaled(AS_F(AS_I(x) & ~SIGN), (I)(-1));
    return e + K(0.25) / e;
}
