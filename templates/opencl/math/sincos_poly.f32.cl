// needs:
// sin and cos of r + low, |r| <= pi/4; our own minimax fits (2^-28 and 2^-33).
static inline __attribute__((overloadable)) F wg_sin_poly(F r, F low) {
    F z = r * r;
    F p = (F)(K(-0.00019516972));
    p = p * z + K(0.008332176);
    p = p * z + K(-0.16666655);
    return r + (r * (z * p) + low);
}
static inline __attribute__((overloadable)) F wg_cos_poly(F r, F low) {
    F z = r * r;
    F p = (F)(K(2.443808e-05));
    p = p * z + K(-0.0013887364);
    p = p * z + K(0.041666646);
    return 1 - (z * K(0.5) - (z * z * p - r * low));
}
static inline __attribute__((overloadable)) F wg_tan_poly(F r, F low) {
    F z = r * r;
    F p = (F)(K(0.009475615));
    p = p * z + K(0.0029577883);
    p = p * z + K(0.024538469);
    p = p * z + K(0.053378444);
    p = p * z + K(0.13339233);
    p = p * z + K(0.33333138);
    return r + (r * (z * p) + low * (1 + z));
}
