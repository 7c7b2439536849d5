// needs:
// NaN if either is NaN. The comparison alone maps to x86's min/max instructions, which return y if either is NaN.
// Returning x for a NaN would need two comparisons, an or, and a select.
static inline __attribute__((overloadable)) F wg_minimum(F x, F y) {
    const F least = x < y ? x : y;
    return x == x ? least : (F)(NAN);
}
