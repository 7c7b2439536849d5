// needs: trunc
// Turn the result for |x|^y into x^y: signs, and the special values of C99 (F.9.4.4).
static inline __attribute__((overloadable)) F wg_pow_ends(F x, F y, F r) {
    F a = AS_F(AS_I(x) & ~SIGN), b = AS_F(AS_I(y) & ~SIGN), h = y * K(0.5);
    M whole = wg_trunc(y) == y, odd = whole & (wg_trunc(h) != h);
    F edge = ((a < 1) != (y < 0)) ? (F)(0) : INF;          // x = 0 or infinite, or y infinite
    r = ((a == 0) | (a == INF) | (b == INF)) ? edge : r;
    r = ((x != x) | (y != y)) ? x + y : r;
    r = ((x < 0) & (a < INF) & (b < INF) & !whole) ? NOT_A_NUMBER : r;
    F minus = AS_F(AS_I(r) ^ (AS_I(x) & SIGN));
    r = odd ? minus : r;
    return ((y == 0) | (x == 1) | ((x == -1) & (b == INF))) ? (F)(1) : r;
}
