// needs:
// A NaN on either side gives NaN. The comparison alone is an instruction of x86, which gives y where either is NaN; with
// x for the NaN the compiler would make it a comparison, another, their union and a choice.
static inline __attribute__((overloadable)) F wg_minimum(F x, F y) {
    const F least = x < y ? x : y;
    return x == x ? least : (F)(NAN);
}
