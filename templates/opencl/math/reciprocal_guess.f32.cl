// needs:
// 1 / x for normal x and 1 / x, accurate to 2^-14 if the processor has an instruction for it, with the same bits in
// vectors and scalars; otherwise with one rounding error.
static inline __attribute__((overloadable)) F wg_reciprocal_guess(F x) {
#if defined(__AVX512F__) && WIDTH == 16
    return __builtin_ia32_rcp14ps512_mask(x, x, (ushort)0xffff);
#elif defined(__AVX512F__)
    F r;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        float4 y = (float4)(LANE(x, i));
        LANE(r, i) = __builtin_ia32_rcp14ss_mask(y, y, y, (uchar)1)[0];
    }
    return r;
#else
    return 1 / x;
#endif
}
