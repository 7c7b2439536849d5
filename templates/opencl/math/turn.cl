// needs: sincos_poly
// sin and cos of 2 pi u for |u| < 2^20. The subtraction of n, the integer nearest to 4 u, is exact; signs as in sin.cl.
static inline __attribute__((overloadable)) F wg_sin_turn(F u) {
    F t = 4 * u + MAGIC, n = t - MAGIC, r = (4 * u - n) * K(1.57079632679489661923);
    I quadrant = AS_I(t);
    F sine = (quadrant & 1) != 0 ? wg_cos_poly(r, (F)(0)) : wg_sin_poly(r, (F)(0));
    return AS_F(AS_I(sine) ^ ((quadrant & 2) << (BITS - 2)));
}
static inline __attribute__((overloadable)) F wg_cos_turn(F u) {
    F t = 4 * u + MAGIC, n = t - MAGIC, r = (4 * u - n) * K(1.57079632679489661923);
    I quadrant = AS_I(t);
    F cosine = (quadrant & 1) != 0 ? wg_sin_poly(r, (F)(0)) : wg_cos_poly(r, (F)(0));
    return AS_F(AS_I(cosine) ^ (((quadrant + 1) & 2) << (BITS - 2)));
}
