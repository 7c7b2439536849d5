// needs:
// atan(y / x) for y, x >= 0 with one division (reductions at tan(pi/8) and 1, as in Cephes): with a the larger and b
// the smaller, t = b / a or (b - a) / (b + a), atan t = t + t^3 P(t^2), P our own minimax fit (2^-30).
static inline __attribute__((overloadable)) F wg_atan_ratio(F y, F x) {
    M swap = y > x;
    F a = swap ? y : x, b = swap ? x : y;
    M huge = a > AS_F((I)(2 * BIAS - 1) << MANTISSA);
    a = huge ? a * K(0.25) : a;
    b = huge ? b * K(0.25) : b;
    b = a == INF ? (b == INF ? (F)(1) : b * 0) : b;
    a = ((a == INF) | (a == 0)) ? (F)(1) : a;
    M wide = b > a * K(0.41421356237309504880);
    F t = (wide ? b - a : b) / (wide ? b + a : a), z = t * t;
    F p = (F)(K(-0.060825013));
    p = p * z + K(0.1059565);
    p = p * z + K(-0.14243805);
    p = p * z + K(0.19998488);
    p = p * z + K(-0.33333316);
    F low = (F)(BITS == 64 ? K(6.123233995736766e-17) : K(-4.37113883e-08));
    p = t * (z * p) + (wide ? low * K(0.5) : (F)(0));
    F angle = (wide ? (F)(K(0.78539816339744830962)) : (F)(0)) + (t + p);
    return swap ? K(1.57079632679489661923) - (angle - low) : angle;
}
