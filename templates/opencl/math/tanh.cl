// needs: expm1
// tanh(|x|) = -t / (2 + t) with t = e^(-2|x|) - 1 in (-1, 0]: no overflow, no cancellation.
// Largest error measured: 1.44 ULP in float, 2.50 in double.
static inline __attribute__((overloadable)) F wg_tanh(F x) {
    F t = wg_expm1(x > 0 ? -2 * x : 2 * x);
    return AS_F((AS_I(t / (-2 - t)) & ~SIGN) | (AS_I(x) & SIGN));
}
