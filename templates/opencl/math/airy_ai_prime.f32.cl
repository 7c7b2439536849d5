// needs: airy_ai_prime.f64
// In double: the error is half an ULP but for values next to zeros.
static inline __attribute__((overloadable)) F wg_airy_ai_prime(F x) { return TO_F(wg_airy_ai_prime(TO_D(x))); }
