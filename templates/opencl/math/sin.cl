// needs: sincos_poly, trig_reduce
// |x| = quadrant pi/2 + r + low; odd quadrants take the cosine of r. The result is negative in quadrants 2 and 3, and
// negated if x is.
// Largest error measured: 1.53 ULP in float, 0.79 in double.
static inline __attribute__((overloadable)) F wg_sin(F x) {
    I quadrant;
    F low, r = wg_trig_reduce(AS_F(AS_I(x) & ~SIGN), &low, &quadrant);
    F sine = (quadrant & 1) != 0 ? wg_cos_poly(r, low) : wg_sin_poly(r, low);
    return AS_F(AS_I(sine) ^ ((quadrant & 2) << (BITS - 2)) ^ (AS_I(x) & SIGN));
}
