// needs: abs, fmod
// Euclid's algorithm. Never negative, but of the least number and itself or 0, whose magnitude wraps around.
static inline __attribute__((overloadable)) F wg_gcd(F x, F y) {
    while (ANY(y != (F)(0))) {
        F rest = wg_fmod(x, y);  // 0 where y is
        x = y == (F)(0) ? x : y;
        y = rest;
    }
    return wg_abs(x);
}
