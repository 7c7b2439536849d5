// needs: atan_ratio
// The angle of the point (x, y), with C99's values at zeros and infinities (F.9.1.4).
// Largest error measured: 1.85 ULP in float, 1.66 in double.
static inline __attribute__((overloadable)) F wg_atan2(F y, F x) {
    F r = wg_atan_ratio(AS_F(AS_I(y) & ~SIGN), AS_F(AS_I(x) & ~SIGN));
    F low = (F)(BITS == 64 ? K(1.2246467991473532e-16) : K(-8.74227766e-08));
    r = AS_I(x) < 0 ? K(3.14159265358979323846) - (r - low) : r;
    return AS_F(AS_I(r) | (AS_I(y) & SIGN));
}
