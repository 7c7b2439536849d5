// needs: pow_full, rsqrt, sqrt
// Fast paths for common exponents: 2 and 1 (the derivative of a square), 3, 1/2, -1 and -2 (the derivative of 1/x), -1/2
// and 0. The square root is that of C99's pow (F.9.4.4): 0 for -0, infinite for minus infinity.
// Largest error measured: 0.51 ULP in float; 1.26 in double, but 1.5 of x^(-1/2) and x^-2.
#if BITS == 64
#define WG_CUBE (x * x * x)
#define WG_INVERSE_SQUARE wg_inverse_square(x)
#define WG_INVERSE_ROOT wg_rsqrt(x + 0)
// Where the square neither underflows nor has more than its rounding error.
static inline __attribute__((overloadable)) F wg_inverse_square(F x) {
    F s = x * x, r = 1 / s;
    M far = !((s > 0x1p-1000) & (s < 0x1p1000));
    if (ANY(far)) r = far ? wg_pow_full(x, (F)(-2)) : r;
    return r;
}
#else
#define WG_CUBE TO_F(TO_D(x) * TO_D(x) * TO_D(x))
#define WG_INVERSE_SQUARE TO_F(1 / (TO_D(x) * TO_D(x)))
#define WG_INVERSE_ROOT wg_inverse_root(x)
// One Newton step in double, if there is something to correct.
static inline __attribute__((overloadable)) F wg_inverse_root(F x) {
    F r = wg_rsqrt(x + 0);
    D d = TO_D(r);
    F better = TO_F(d * (1.5 - 0.5 * TO_D(x) * d * d));
    return ((r > 0) & (r < INF)) ? better : r;
}
#endif
#define WG_ROOT (x == -INF ? INF : wg_sqrt(x) + 0)
static inline __attribute__((overloadable)) F wg_pow(F x, F y) {
    if (!ANY(y != (F)(LANE(y, 0)))) {
        if (LANE(y, 0) == 2) return x * x;
        if (LANE(y, 0) == 1) return x;
        if (LANE(y, 0) == 3) return WG_CUBE;
        if (LANE(y, 0) == -1) return 1 / x;
        if (LANE(y, 0) == -2) return WG_INVERSE_SQUARE;
        if (LANE(y, 0) == K(0.5)) return WG_ROOT;
        if (LANE(y, 0) == K(-0.5)) return x == -INF ? (F)(0) : WG_INVERSE_ROOT;
        if (LANE(y, 0) == 0) return 1;
        return wg_pow_full(x, y);
    }
    // The same formulas in vectors with several exponents: a value must not depend on its neighbours.
    F r = wg_pow_full(x, y);
    if (ANY((y == 2) | (y == 1) | (y == 3) | (y == -1) | (y == -2) | (y == K(0.5)) | (y == K(-0.5)))) {
        r = y == 2 ? x * x : r;
        r = y == 1 ? x : r;
        r = y == 3 ? WG_CUBE : r;
        r = y == -1 ? 1 / x : r;
        r = y == -2 ? WG_INVERSE_SQUARE : r;
        r = y == K(0.5) ? WG_ROOT : r;
        r = y == K(-0.5) ? (x == -INF ? (F)(0) : WG_INVERSE_ROOT) : r;
    }
    return r;
}
#undef WG_CUBE
#undef WG_INVERSE_SQUARE
#undef WG_ROOT
#undef WG_INVERSE_ROOT
