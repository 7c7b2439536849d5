// needs:
// Entry j[i] modulo 16 of a row of 16, for every lane: one permutation instruction if the processor has it.
static inline __attribute__((overloadable)) F wg_lookup(constant float16 *row, I j) {
#if WIDTH == 16 && defined(__AVX512F__)
    return __builtin_ia32_permvarsf512(*row, j);
#elif WIDTH == 1
    return ((constant float *)row)[j & 15];
#else
    F r;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) r[i] = ((constant float *)row)[j[i] & 15];
    return r;
#endif
}
