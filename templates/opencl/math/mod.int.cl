// needs: fmod
// The sign of y; 0 for y == 0.
static inline __attribute__((overloadable)) F wg_mod(F x, F y) {
    F r = wg_fmod(x, y);
    F moved = AS_F((U)(AS_U(r) + AS_U(y)));
    return ((r != (F)(0)) & ((r < (F)(0)) != (y < (F)(0)))) ? moved : r;
}
