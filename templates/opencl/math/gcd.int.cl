// needs: abs, fmod
// Euclid's algorithm. Never negative, except gcd of the smallest integer with itself or 0, whose magnitude overflows.
static inline __attribute__((overloadable)) F wg_gcd(F x, F y) {
    while (ANY(y != (F)(0))) {
        F rest = wg_fmod(x, y);  // 0 if y is 0
        x = y == (F)(0) ? x : y;
        y = rest;
    }
    return wg_abs(x);
}
