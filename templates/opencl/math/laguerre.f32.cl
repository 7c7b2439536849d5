// needs: laguerre.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_laguerre(F a, F n, F x) {
    return TO_F(wg_laguerre(TO_D(a), TO_D(n), TO_D(x)));
}
