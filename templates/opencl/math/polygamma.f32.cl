// needs: polygamma.f64
// Largest error measured: 0.5 ULP but near the zeros below 0.
static inline __attribute__((overloadable)) F wg_polygamma(F n, F x) {
    return TO_F(wg_polygamma(TO_D(n), TO_D(x)));
}
