// needs: sincos_poly, trig_reduce
// Largest error measured: 1.53 ULP in float, 0.79 in double.
static inline __attribute__((overloadable)) F wg_sin(F x) {
    I q;
    F low, r = wg_trig_reduce(AS_F(AS_I(x) & ~SIGN), &low, &q);
    F v = (q & 1) != 0 ? wg_cos_poly(r, low) : wg_sin_poly(r, low);
    return AS_F(AS_I(v) ^ ((q & 2) << (BITS - 2)) ^ (AS_I(x) & SIGN));
}
