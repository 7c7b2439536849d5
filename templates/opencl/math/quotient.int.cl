// needs:
// C's x / y with 0 for y == 0 and a wrap-around for the most negative number / -1, neither of which may reach the
// divide instruction.
// Up to 16 bits by a division of floats, which OpenCL allows to err by 2.5 units in the last place: a relative error
// below 3e-7, 3.6e-7 with the rounding of the product. The factor 1 + 2^-18 lifts a quotient by 3.8e-6, so an exact
// quotient stays above its integer; and as |x| < 2^16, the others stay 1e-5 below the next integer.
// 32 bits by a division of doubles on processors, whose vectors have no integer division; elsewhere by the integer
// division, because double may be slow or missing.
static inline __attribute__((overloadable)) F wg_quotient(F x, F y) {
    M signed_type = (M)((F)(-1) < (F)(0)), minus = signed_type & (y == (F)(-1)), none = y == (F)(0);
    F d = (minus | none) ? (F)(1) : y;
#if BITS <= 16
    F q = TO_F(TO_S(x) * 1.000003814697265625f / TO_S(d));
#elif BITS == 32 && (defined(__x86_64__) || defined(__aarch64__)) && !defined(WG_NO_FLOAT64)
    F q = TO_F(TO_D(x) / TO_D(d));
#else
    F q = x / d;
#endif
    F wrapped = AS_F((U)((U)(0) - AS_U(x)));
    q = minus ? wrapped : q;
    return none ? (F)(0) : q;
}
