// needs: rshift
static inline __attribute__((overloadable)) F wg_shift_right(F x, F y) { return wg_rshift(x, y); }
