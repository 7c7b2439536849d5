// needs: philox
// [0, 1): the upper 24 bits of word 0.
static inline __attribute__((overloadable)) F wg_uniform_f32(W bits) { return TO_F(AS_I(bits >> 8)) * 0x1p-24f; }
static inline __attribute__((overloadable)) F wg_uniform_float(L index, ulong offset, ulong key) {
    W b, c, d, a = wg_philox(index, offset, key, &b, &c, &d);
    return wg_uniform_f32(a);
}
