// needs:
// Arithmetic for signed numbers; a shift as wide as the number, or a negative one, leaves only copies of the sign.
static inline __attribute__((overloadable)) F wg_rshift(F x, F y) {
    M fits = (y >= (F)(0)) & (y < (F)(BITS));
    F by = fits ? y : (F)(BITS - 1), r = (F)(x >> by), rest = r >> (F)(1);
    return fits ? r : rest;
}
