// needs:
// y 2^i for y between 1/2 and 2, rounded once: subnormal results and infinity are correct. One instruction if
// the processor has it, else two factors that are powers of two.
static inline __attribute__((overloadable)) F wg_scale(F y, I i) {
#if WIDTH == 16 && defined(__AVX512F__)
    return __builtin_ia32_scalefps512_mask(y, INT_TO_F(i), y, (ushort)0xffff, 4);
#else
    I h = i >> 1;
    return (y * AS_F((h + 127) << 23)) * AS_F((i - h + 127) << 23);
#endif
}
