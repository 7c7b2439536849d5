// needs:
// In unsigned arithmetic: the most negative number keeps its value, as in NumPy.
static inline __attribute__((overloadable)) F wg_abs(F x) {
    F minus = AS_F((U)((U)(0) - AS_U(x)));
    return x < (F)(0) ? minus : x;
}
