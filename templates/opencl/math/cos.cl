// needs: sincos_poly, trig_reduce
// As in sin.cl, one quadrant ahead.
// Largest error measured: 1.53 ULP in float, 0.78 in double.
static inline __attribute__((overloadable)) F wg_cos(F x) {
    I quadrant;
    F low, r = wg_trig_reduce(AS_F(AS_I(x) & ~SIGN), &low, &quadrant);
    F cosine = (quadrant & 1) != 0 ? wg_sin_poly(r, low) : wg_cos_poly(r, low);
    return AS_F(AS_I(cosine) ^ (((quadrant + 1) & 2) << (BITS - 2)));
}
