// needs: fmod, floor
// Python's x // y as in NumPy and PyTorch: (x - x mod y) / y, corrected to an integer; x / 0 as in a division.
static inline __attribute__((overloadable)) F wg_floor_div(F x, F y) {
    F r = wg_fmod(x, y), plain = x / y, q = (x - r) / y;
    q = ((r != 0) & ((r < 0) != (y < 0))) ? q - 1 : q;
    F n = wg_floor(q);
    n = q - n > K(0.5) ? n + 1 : n;
    F zero = AS_F(AS_I(plain) & SIGN);
    n = q == 0 ? zero : n;
    return y == 0 ? plain : n;
}
