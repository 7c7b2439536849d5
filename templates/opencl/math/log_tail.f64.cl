// needs:
// log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1], by s = f / (2 + f) and log(1 + f) = 2 atanh(s), the shape of
// fdlibm's e_log.c; the polynomial in s^2 is our own minimax fit (relative error 2^-58 of log).
static inline __attribute__((overloadable)) F wg_log_tail(F f) {
    F s = f / (2 + f), z = s * s, h = f * f * 0.5;
    F p = (F)(0.14618325837258095);
    p = p * z + 0.15331560274000533;
    p = p * z + 0.18182894322986437;
    p = p * z + 0.22222211057680924;
    p = p * z + 0.28571428626492085;
    p = p * z + 0.3999999999989824;
    p = p * z + 0.666666666666667;
    return s * (h + z * p) - h;
}
