// needs: hermite.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_hermite(F c, F n, F x) {
    return TO_F(wg_hermite(TO_D(c), TO_D(n), TO_D(x)));
}
