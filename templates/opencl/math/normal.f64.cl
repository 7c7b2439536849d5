// needs: philox, uniform, log, sqrt, turn
// Box & Muller (1958): the radius from words 0 and 1, in (0, 1], the angle from words 2 and 3.
static inline __attribute__((overloadable)) F wg_normal_double(L index, ulong offset, ulong key) {
    W b, c, d, a = wg_philox(index, offset, key, &b, &c, &d);
    return wg_sqrt(-2 * wg_log(wg_uniform_f64(a, b) + 0x1p-53)) * wg_cos_turn(wg_uniform_f64(c, d));
}
