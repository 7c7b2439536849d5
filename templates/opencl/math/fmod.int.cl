// needs: quotient
// The sign of x; 0 for y == 0.
static inline __attribute__((overloadable)) F wg_fmod(F x, F y) {
    F r = AS_F((U)(AS_U(x) - AS_U(wg_quotient(x, y)) * AS_U(y)));
    return y == (F)(0) ? (F)(0) : r;
}
