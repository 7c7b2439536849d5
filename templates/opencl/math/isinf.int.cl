// needs:
static inline __attribute__((overloadable)) M wg_isinf(F x) { return (M)(0); }
