# needs: log, philox, sqrt, turn, unit
# Box & Muller (1958): in float32 the radius from (word 0 + 1) / 2^32 in (0, 1], up to 6.66, and the angle from 24 bits
# of word 1; in float64 the radius from words 0 and 1 and the angle from words 2 and 3.
@triton.jit
def wg_normal(index, offset, key, C: tl.constexpr):
    a, b, c, d = wg_philox(index, offset, key)
    if C == tl.float64:
        u = wg_unit(a, b, C) + 1.1102230246251565e-16
        _, cosine = wg_turn(wg_unit(c, d, C))
    else:
        u = ((a >> 16).to(tl.int32).to(C) * 65536.0 + (a & 0xFFFF).to(tl.int32).to(C) + 1.0) * 2.3283064365386963e-10
        _, cosine = wg_turn(wg_unit(b, b, C))
    return wg_sqrt(-2.0 * wg_log(u)) * cosine
