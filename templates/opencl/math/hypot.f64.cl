// needs: sqrt
// sqrt(x^2 + y^2), both scaled by a power of two when the squares would overflow or vanish.
// Largest error measured: 1.06 ULP.
static inline __attribute__((overloadable)) F wg_hypot(F x, F y) {
    F a = AS_F(AS_I(x) & ~SIGN), b = AS_F(AS_I(y) & ~SIGN), m = a > b ? a : b;
    M large = m > 0x1p500, small = m < 0x1p-500;
    F scale = large ? (F)(0x1p-600) : (small ? (F)(0x1p600) : (F)(1));
    F back = large ? (F)(0x1p600) : (small ? (F)(0x1p-600) : (F)(1));
    F u = a * scale, v = b * scale, r = wg_sqrt(u * u + v * v) * back;
    return ((a == INF) | (b == INF)) ? INF : r;
}
