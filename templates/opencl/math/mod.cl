// needs: fmod
// Python's remainder, with the sign of the divisor. Exact before the last addition, as in NumPy and PyTorch.
static inline __attribute__((overloadable)) F wg_mod(F x, F y) {
    F r = wg_fmod(x, y);
    F moved = ((r < 0) != (y < 0)) ? r + y : r;
    F zero = AS_F(AS_I(r) & ~SIGN) + (F)(0);
    zero = AS_F(AS_I(zero) | (AS_I(y) & SIGN));
    return r == 0 ? zero : moved;
}
