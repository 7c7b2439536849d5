// needs: round
// round half to even, less 1 where that went up: exact.
static inline __attribute__((overloadable)) F wg_floor(F x) {
    F r = wg_round(x);
    return r > x ? r - 1 : r;
}
