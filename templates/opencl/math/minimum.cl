// needs:
// A NaN on either side gives NaN.
static inline __attribute__((overloadable)) F wg_minimum(F x, F y) { return ((x < y) | (x != x)) ? x : y; }
