// needs:
// Entry j[i] modulo 16 of a row of 16, for every lane: one permutation where the processor has it.
static inline __attribute__((overloadable)) F wg_lookup(constant float16 *row, I j) {
#if WIDTH == 16 && defined(__AVX512F__)
    return __builtin_ia32_permvarsf512(*row, j);
#elif WIDTH == 16 && defined(WG_ASSEMBLER512)
    F r;
    __asm__("vpermps %1, %2, %0" : "=X"(r) : "X"(*row), "X"(AS_F(j)));
    return r;
#elif WIDTH == 1
    return ((constant float *)row)[j & 15];
#else
    F r;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) r[i] = ((constant float *)row)[j[i] & 15];
    return r;
#endif
}
