// needs:
// Half to even: adding and subtracting 2^23 (2^52) rounds smaller |x|; larger numbers are integers already.
static inline __attribute__((overloadable)) F wg_round(F x) {
    F a = AS_F(AS_I(x) & ~SIGN), limit = AS_F((I)(BIAS + MANTISSA) << MANTISSA);
    F r = (a + limit) - limit;
    r = AS_F(AS_I(r) | (AS_I(x) & SIGN));
    return a < limit ? r : x;
}
