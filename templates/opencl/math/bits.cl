// needs: philox
// fixed types
// Word 0 of the counter, 32 bits.
static inline __attribute__((overloadable)) L wg_bits_any(L index, ulong offset, ulong key) {
    W b, c, d;
    return TO_L(wg_philox(index, offset, key, &b, &c, &d));
}
