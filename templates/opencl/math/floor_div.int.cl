// needs: quotient
// Rounded down, as in Python; 0 for y == 0.
static inline __attribute__((overloadable)) F wg_floor_div(F x, F y) {
    F q = wg_quotient(x, y);
    F r = AS_F((U)(AS_U(x) - AS_U(q) * AS_U(y)));
    F lower = AS_F((U)(AS_U(q) - (U)(1)));
    M down = (y != (F)(0)) & (r != (F)(0)) & ((r < (F)(0)) != (y < (F)(0)));
    return down ? lower : q;
}
