// needs:
// The upper half of the bits of the significand: products of two such numbers are exact.
static inline __attribute__((overloadable)) F wg_upper(F x) { return AS_F(AS_I(x) & ((I)(-1) << (BITS == 64 ? 27 : 12))); }
