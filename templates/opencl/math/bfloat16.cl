// needs:
// fixed types
// bfloat16 <-> float: the upper half of a float, to nearest even; NaN stays NaN.
static inline __attribute__((overloadable)) S wg_from_bfloat16(H x) { return AS_S(TO_W(x) << 16); }
static inline __attribute__((overloadable)) H wg_to_bfloat16(S x) {
    W u = AS_W(x), r = (u + (0x7fff + ((u >> 16) & 1))) >> 16, nan = (u >> 16) | 0x40;
    return TO_H((u & 0x7fffffff) > 0x7f800000 ? nan : r);
}
