// needs: sincos_poly, trig_reduce
// x = quadrant pi/2 + r + low, as in sin.cl: tan r, or -1 / tan r in odd quadrants.
// Largest error measured: 2.80 ULP in float, 1.58 in double.
static inline __attribute__((overloadable)) F wg_tan(F x) {
    I quadrant;
    F low, r = wg_trig_reduce(AS_F(AS_I(x) & ~SIGN), &low, &quadrant);
    F t = wg_tan_poly(r, low);
    t = (quadrant & 1) != 0 ? -1 / t : t;
    return AS_F(AS_I(t) ^ (AS_I(x) & SIGN));
}
