// needs:
// C's fmod, exact. A round subtracts q b from a, with q of at most 11 (24) bits and b in two halves, so that every
// product is exact; the only difference that may round keeps its error (Fast2Sum, Dekker 1971). Quotients up to 2^11
// (2^24) take one round; larger ones go through a cold loop that removes 10 (23) bits per round.
#if BITS == 64
#define WG_KEEP ((I)(-1) << 29)
#define WG_HIGH ((I)(-1) << 27)
#define WG_LIMIT 16777216.0
#else
#define WG_KEEP ((I)(-1) << 13)
#define WG_HIGH ((I)(-1) << 12)
#define WG_LIMIT 2048.0f
#endif
static inline __attribute__((overloadable)) F wg_fmod_take(F a, F q, F b) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    F high = AS_F(AS_I(b) & WG_HIGH), low = b - high;
    F p = q * high, s = a - p, error = (a - s) - p;
    s = (s - q * low) + error;
    return s < 0 ? s + b : s;
}
static inline __attribute__((overloadable)) F wg_fmod(F x, F y) {
    F a = AS_F(AS_I(x) & ~SIGN), b = AS_F(AS_I(y) & ~SIGN);
    M good = (a < INF) & (b > 0), whole = b == INF, plain = good & (b < INF);
    a = plain ? a : (F)(0);
    b = plain ? b : (F)(1);
    F q = a / b, n = (q + AS_F((I)(BIAS + MANTISSA) << MANTISSA)) - AS_F((I)(BIAS + MANTISSA) << MANTISSA);
    n = n > q ? n - 1 : n;
    n = q < WG_LIMIT ? n : (F)(0);
    a = wg_fmod_take(a, n, b);
    while (ANY(a >= b)) {
        F big = AS_F((I)(BIAS + BIAS / 2) << MANTISSA), c = b;  // quotients too large for the type: a larger divisor
        c = a / c < INF ? c : c * big * big;
        c = a / c < INF ? c : c * big;
        q = a / c;
        n = (q + AS_F((I)(BIAS + MANTISSA) << MANTISSA)) - AS_F((I)(BIAS + MANTISSA) << MANTISSA);
        n = n > q ? n - 1 : n;
        n = q < WG_LIMIT ? n : AS_F((AS_I(q) - 1) & WG_KEEP);
        a = wg_fmod_take(a, n, c);
    }
    F r = AS_F(AS_I(a) | (AS_I(x) & SIGN));
    r = good ? r : NOT_A_NUMBER;
    return (good & whole) ? x : r;
}
#undef WG_KEEP
#undef WG_HIGH
#undef WG_LIMIT
