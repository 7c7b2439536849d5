// needs:
// Correctly rounded. A loop over lanes of the compiler's own square root, which becomes one vector instruction, but not
// with Intel's compiler.
// Largest error measured: 0.50 ULP in float, 0.50 in double.
static inline __attribute__((overloadable)) F wg_sqrt(F x) {
#if BITS == 64
#define WG_SQRT __builtin_sqrt
#else
#define WG_SQRT __builtin_sqrtf
#endif
#if WIDTH == 1
    return WG_SQRT(x);
#elif defined(WG_ASSEMBLER512) && WIDTH * BITS >= 128 && WIDTH * BITS <= 512
    F r;
#if BITS == 64
    __asm__("vsqrtpd %1, %0" : "=X"(r) : "X"(x));
#else
    __asm__("vsqrtps %1, %0" : "=X"(r) : "X"(x));
#endif
    return r;
#else
    F r;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) r[i] = WG_SQRT(x[i]);
    return r;
#endif
#undef WG_SQRT
}
