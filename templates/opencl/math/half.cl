// needs:
// fixed types
// IEEE half <-> float by integer operations (after F. Giesen, "half to float done quick"): subnormals, infinities and
// NaN are preserved (a signalling NaN becomes quiet), rounding to nearest even. Vectors of 16 use the processor's
// conversion instructions if it has them.
static inline __attribute__((overloadable)) S wg_from_half(H x) {
#if WIDTH == 16 && defined(__AVX512F__)
    return __builtin_ia32_vcvtph2ps512_mask(__builtin_astype(x, short16), (S)(0), (ushort)0xffff, 4);
#else
    W h = TO_W(x), o = (h & 0x7fff) << 13, e = o & 0x0f800000;
    W normal = o + 0x38000000, special = (o + 0x70000000) | (o > 0x0f800000 ? (W)(0x00400000) : (W)(0));
    W tiny = AS_W(AS_S(o + 0x38800000) - AS_S((W)(0x38800000)));
    o = e == 0 ? tiny : (e == 0x0f800000 ? special : normal);
    return AS_S(o | ((h & 0x8000) << 16));
#endif
}
static inline __attribute__((overloadable)) H wg_to_half(S x) {
#if WIDTH == 16 && defined(__AVX512F__)
    return __builtin_astype(__builtin_ia32_vcvtps2ph512_mask(x, 0, (short16)(0), (ushort)0xffff), ushort16);
#else
    W u = AS_W(x), f = u & 0x7fffffff;
    W tiny = AS_W(AS_S(f) + 0.5f) - 0x3f000000;
    W normal = (f + 0xc8000fff + ((f >> 13) & 1)) >> 13;
    W special = f > 0x7f800000 ? 0x7e00 | ((f >> 13) & 0x3ff) : (W)(0x7c00);
    W o = f < 0x38800000 ? tiny : (f >= 0x47800000 ? special : normal);
    return TO_H(o | ((u >> 16) & 0x8000));
#endif
}
