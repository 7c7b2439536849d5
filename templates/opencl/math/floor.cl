// needs: round
// Round half to even, minus 1 if that rounded up: exact.
static inline __attribute__((overloadable)) F wg_floor(F x) {
    F r = wg_round(x);
    return r > x ? r - 1 : r;
}
