// needs:
// 0 when the shift is as wide as the number or negative, as in NumPy.
static inline __attribute__((overloadable)) F wg_lshift(F x, F y) {
    M fits = (y >= (F)(0)) & (y < (F)(BITS));
    F by = fits ? y : (F)(0);
    F r = AS_F((U)(AS_U(x) << AS_U(by)));
    return fits ? r : (F)(0);
}
