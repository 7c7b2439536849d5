// needs:
// -1, 0 or 1; 0 for NaN, as in PyTorch.
static inline __attribute__((overloadable)) F wg_sign(F x) {
    F below = x < (F)(0) ? (F)(-1) : (F)(0);
    return x > (F)(0) ? (F)(1) : below;
}
