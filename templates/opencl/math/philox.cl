// needs:
// fixed types
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), checked against
// the vectors of Random123. Element i of a stream takes the counter (low 64 bits: i, high 64 bits: offset) to itself,
// although a counter yields four words: so its value does not depend on shape, strides, vector width or which work-item
// computes it, and one element's dtype may take one word (float), two (double) or four (normal doubles).
// Words are the low halves of 64-bit lanes, whose high halves hold whatever the products leave there. Processors multiply
// the low halves of lanes by one instruction; narrowing and widening the words in each round takes twice the time.
static inline __attribute__((overloadable)) W wg_philox(L counter, ulong offset, ulong key, W *second, W *third,
                                                            W *fourth) {
    L a = counter, b = counter >> 32, c = (L)(offset), d = (L)(offset >> 32);
    uint k = (uint)key, l = (uint)(key >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        L p = (a & 0xFFFFFFFFUL) * 0xD2511F53UL, q = (c & 0xFFFFFFFFUL) * 0xCD9E8D57UL;
        a = (q >> 32) ^ b ^ (ulong)k;
        c = (p >> 32) ^ d ^ (ulong)l;
        b = q;
        d = p;
        k += 0x9E3779B9;
        l += 0xBB67AE85;
    }
    *second = TO_W(b);
    *third = TO_W(c);
    *fourth = TO_W(d);
    return TO_W(a);
}
