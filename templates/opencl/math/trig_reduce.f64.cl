// needs: rem_pio2
// Return r, and store low and q modulo 4, of x = q pi/2 + r + low with |r| about pi/4 at most. pi/2 is the sum of three
// parts of 33 bits and a rest, as in fdlibm's e_rem_pio2.c. This holds for |x| < 2^20. A loop over lanes, which rarely
// runs, calls rem_pio2 for larger finite numbers.
static inline __attribute__((overloadable)) F wg_trig_reduce(F x, F *low, I *q) {
    F t = x * 6.36619772367581382433e-01 + MAGIC, n = t - MAGIC;
    F a = x - n * 1.57079632673412561417e+00;
    F u = n * -6.07710050630396597660e-11, b = a + u, v = b - a, e = (a - (b - v)) + (u - v);
    u = n * -2.02226624871116645580e-21;
    F c = b + u;
    v = c - b;
    e = e + ((b - (c - v)) + (u - v)) - n * 8.47842766036889956997e-32;
    F r = c + e;
    *low = e - (r - c);
    *q = AS_I(t) & 3;
    M large = ((x > 1048576.0) | (x < -1048576.0)) & (x < INF) & (x > -INF);
    if (ANY(large)) {
#pragma clang loop unroll(disable)
        for (int i = 0; i < WIDTH; i++) {
            if (!LANE(large, i)) continue;
            double high, rest;
            LANE(*q, i) = wg_rem_pio2(LANE(x, i), &high, &rest);
            LANE(r, i) = high;
            LANE(*low, i) = rest;
        }
    }
    return r;
}
