// needs: sincos_poly
// sin and cos of 2 pi u for |u| < 2^20, reduced exactly.
static inline __attribute__((overloadable)) F wg_sin_turn(F u) {
    F t = 4 * u + MAGIC, n = t - MAGIC, r = (4 * u - n) * K(1.57079632679489661923);
    I q = AS_I(t);
    F v = (q & 1) != 0 ? wg_cos_poly(r, (F)(0)) : wg_sin_poly(r, (F)(0));
    return AS_F(AS_I(v) ^ ((q & 2) << (BITS - 2)));
}
static inline __attribute__((overloadable)) F wg_cos_turn(F u) {
    F t = 4 * u + MAGIC, n = t - MAGIC, r = (4 * u - n) * K(1.57079632679489661923);
    I q = AS_I(t);
    F v = (q & 1) != 0 ? wg_sin_poly(r, (F)(0)) : wg_cos_poly(r, (F)(0));
    return AS_F(AS_I(v) ^ (((q + 1) & 2) << (BITS - 2)));
}
