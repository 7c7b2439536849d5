# needs:
# Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), checked against
# the vectors of Random123. Element i of a stream takes the counter (low 64 bits: i, high 64 bits: offset) to itself,
# although a counter yields four words: so its value depends on no shape, stride, block or program.
@triton.jit
def wg_philox(index, offset, key):
    """The four 32-bit words of a counter, uint32."""
    low = index.to(tl.uint64)
    high = offset.to(tl.uint64)
    a = low.to(tl.uint32)
    b = (low >> 32).to(tl.uint32)
    c = high.to(tl.uint32)
    d = (high >> 32).to(tl.uint32)
    key_low = key.to(tl.uint64).to(tl.uint32)
    key_high = (key.to(tl.uint64) >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        p = a.to(tl.uint64) * 0xD2511F53
        q = c.to(tl.uint64) * 0xCD9E8D57
        a = (q >> 32).to(tl.uint32) ^ b ^ key_low
        c = (p >> 32).to(tl.uint32) ^ d ^ key_high
        b = q.to(tl.uint32)
        d = p.to(tl.uint32)
        key_low += 0x9E3779B9
        key_high += 0xBB67AE85
    return a, b, c, d
