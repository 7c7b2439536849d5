// needs:
static inline __attribute__((overloadable)) M wg_isfinite(F x) { return (AS_I(x) & ~SIGN) < AS_I(INF); }
