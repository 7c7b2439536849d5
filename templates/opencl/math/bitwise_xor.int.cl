// needs:
static inline __attribute__((overloadable)) F wg_bitwise_xor(F x, F y) { return x ^ y; }
