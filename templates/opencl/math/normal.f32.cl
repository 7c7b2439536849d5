// needs: philox, uniform, log, sqrt, turn
// Box & Muller (1958): the radius from (word 0 + 1) / 2^32 in (0, 1], the angle from 24 bits of word 1. Values are at most 6.66.
static inline __attribute__((overloadable)) F wg_normal_float(L index, ulong offset, ulong key) {
    W b, c, d, a = wg_philox(index, offset, key, &b, &c, &d);
    F u = (TO_F(AS_I(a >> 16)) * 65536 + TO_F(AS_I(a & 0xffff)) + 1) * 0x1p-32f;
    return wg_sqrt(-2 * wg_log(u)) * wg_cos_turn(wg_uniform_f32(b));
}
