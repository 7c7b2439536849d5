// needs: gegenbauer.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_gegenbauer(F a, F n, F x) {
    return TO_F(wg_gegenbauer(TO_D(a), TO_D(n), TO_D(x)));
}
