// needs: exp, log1p
// log(1 + e^x) = max(x, 0) + log1p(e^-|x|)
// Largest error measured: 1.67 ULP in float, 1.72 in double.
static inline __attribute__((overloadable)) F wg_softplus(F x) {
    F e = wg_log1p(wg_exp(x > 0 ? -x : x));
    return x > 0 ? x + e : e;
}
