// needs:
// C's x / y with 0 for y == 0 and a wrap-around for the most negative number / -1, neither of which may reach the
// divide instruction. Up to 32 bits by a floating-point division: the quotient is at least 1 / x (relative) away from
// the next integer, far above the rounding error, and vectors have no integer division.
static inline __attribute__((overloadable)) F wg_quotient(F x, F y) {
    M signed_type = (M)((F)(-1) < (F)(0)), minus = signed_type & (y == (F)(-1)), none = y == (F)(0);
    F d = (minus | none) ? (F)(1) : y;
#if BITS <= 16
    F q = TO_F(TO_S(x) / TO_S(d));
#elif BITS == 32
    F q = TO_F(TO_D(x) / TO_D(d));
#else
    F q = x / d;
#endif
    F wrapped = AS_F((U)((U)(0) - AS_U(x)));
    q = minus ? wrapped : q;
    return none ? (F)(0) : q;
}
