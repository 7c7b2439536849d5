// needs: lshift
static inline __attribute__((overloadable)) F wg_shift_left(F x, F y) { return wg_lshift(x, y); }
