// needs: exp_scaled
// |x| < 1: x + x^3 P(x^2), our own minimax fit (2^-63). Beyond: e^|x| / 2 - 1 / (2 e^|x|), with 1/2 inside the
// exponential.
// Largest error measured: 1.62 ULP.
static inline __attribute__((overloadable)) F wg_sinh(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), z = a * a;
    F p = (F)(K(7.759311384066814e-13));
    p = p * z + K(1.6057240397769124e-10);
    p = p * z + K(2.5052123397400844e-08);
    p = p * z + K(2.755731915534703e-06);
    p = p * z + K(0.0001984126984143764);
    p = p * z + K(0.008333333333333139);
    p = p * z + K(0.16666666666666669);
    F e = wg_exp_scaled(a, (I)(-1));
    F r = a < 1 ? a + a * (z * p) : e - K(0.25) / e;
    return AS_F(AS_I(r) | (AS_I(x) & SIGN));
}
