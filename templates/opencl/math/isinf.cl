// needs:
static inline __attribute__((overloadable)) M wg_isinf(F x) { return (AS_I(x) & ~SIGN) == AS_I(INF); }
