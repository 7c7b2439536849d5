// needs:
static inline __attribute__((overloadable)) F wg_bitwise_not(F x) { return ~x; }
