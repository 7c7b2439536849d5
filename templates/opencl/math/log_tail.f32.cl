// needs:
// log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1]: -f^2/2 + f^3 P(f), P our own minimax fit (2^-30 of log).
static inline __attribute__((overloadable)) F wg_log_tail(F f) {
    F p = (F)(K(0.06916137));
    p = p * f + K(-0.117901474);
    p = p * f + K(0.118727855);
    p = p * f + K(-0.123842746);
    p = p * f + K(0.14218678);
    p = p * f + K(-0.16669255);
    p = p * f + K(0.20002225);
    p = p * f + K(-0.24999987);
    p = p * f + K(0.3333331);
    F z = f * f;
    return z * (f * p) - z * K(0.5);
}
