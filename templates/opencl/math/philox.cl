// needs:
// fixed types
// Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), checked against
// the vectors of Random123. Element i of a stream takes the counter (low 64 bits: i, high 64 bits: offset) to itself,
// although a counter yields four words: so its value does not depend on shape, strides, vector width or which work-item
// computes it, and one element's dtype may take one word (float), two (double) or four (normal doubles).
static inline __attribute__((overloadable)) W wg_philox(L counter, ulong offset, ulong key, W *second, W *third,
                                                            W *fourth) {
    W a = TO_W(counter), b = TO_W(counter >> 32), c = (W)((uint)offset), d = (W)((uint)(offset >> 32));
    uint k = (uint)key, l = (uint)(key >> 32);
#pragma unroll
    for (int i = 0; i < 10; i++) {
        L p = TO_L(a) * 0xD2511F53UL, q = TO_L(c) * 0xCD9E8D57UL;
        a = TO_W(q >> 32) ^ b ^ k;
        c = TO_W(p >> 32) ^ d ^ l;
        b = TO_W(q);
        d = TO_W(p);
        k += 0x9E3779B9;
        l += 0xBB67AE85;
    }
    *second = b;
    *third = c;
    *fourth = d;
    return a;
}
