// needs: philox
// [0, 1): 53 bits, word 0 below word 1.
static inline __attribute__((overloadable)) F wg_uniform_f64(W low, W high) {
    L bits = (TO_L(high) << 32 | TO_L(low)) >> 11;
    return TO_F(AS_I(bits)) * 0x1p-53;
}
static inline __attribute__((overloadable)) F wg_uniform_double(L index, ulong offset, ulong key) {
    W b, c, d, a = wg_philox(index, offset, key, &b, &c, &d);
    return wg_uniform_f64(a, b);
}
