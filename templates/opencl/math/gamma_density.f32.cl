// needs: gamma_density.f64
// In double: the error is half an ULP.
static inline __attribute__((overloadable)) F wg_gamma_density(F a, F x) {
    return TO_F(wg_gamma_density(TO_D(a), TO_D(x)));
}
