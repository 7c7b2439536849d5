// needs:
// Wrap-around power by squaring. A negative exponent gives the truncated reciprocal: 0 but for the bases 1 and -1.
static inline __attribute__((overloadable)) F wg_pow(F x, F y) {
    U r = (U)(1), b = AS_U(x), e = AS_U(y);
    M negative = y < (F)(0);
    F odd = y & (F)(1), unit = odd != (F)(0) ? x : (F)(1);
    unit = ((x == (F)(1)) | (x == (F)(-1))) ? unit : (F)(0);
    e = negative ? (U)(0) : e;
    while (ANY(e != (U)(0))) {
        r = (e & (U)(1)) != (U)(0) ? (U)(r * b) : r;
        b = (U)(b * b);
        e = e >> (U)(1);
    }
    return negative ? unit : AS_F(r);
}
