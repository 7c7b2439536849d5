// needs:
// sin and cos of r + low, |r| <= pi/4, combined as in fdlibm's k_sin.c and k_cos.c; our own minimax fits (2^-68, 2^-64
// and, for tan, 2^-60).
static inline __attribute__((overloadable)) F wg_sin_poly(F r, F low) {
    F z = r * r;
    F p = (F)(-7.57869443253626e-13);
    p = p * z + 1.60583665709155e-10;
    p = p * z + -2.5052104911256367e-08;
    p = p * z + 2.7557319214189618e-06;
    p = p * z + -0.00019841269841255066;
    p = p * z + 0.008333333333333323;
    p = p * z + -0.16666666666666666;
    return r + (r * (z * p) + (low - z * low * 0.5));
}
static inline __attribute__((overloadable)) F wg_cos_poly(F r, F low) {
    F z = r * r, h = z * 0.5, c = 1 - h;
    F p = (F)(-1.135956640309983e-11);
    p = p * z + 2.0875721776699913e-09;
    p = p * z + -2.75573143419398e-07;
    p = p * z + 2.480158728944865e-05;
    p = p * z + -0.0013888888888874075;
    p = p * z + 0.0416666666666666;
    return c + (((1 - c) - h) + (z * z * p - r * low));
}
static inline __attribute__((overloadable)) F wg_tan_poly(F r, F low) {
    F z = r * r;
    F p = (F)(9.819690530524437e-06);
    p = p * z + -2.437734297007781e-05;
    p = p * z + 4.886769245724789e-05;
    p = p * z + -2.594094259972126e-05;
    p = p * z + 6.748990889978008e-05;
    p = p * z + 8.339676783179867e-05;
    p = p * z + 0.0002438208684660688;
    p = p * z + 0.0005888430024430463;
    p = p * z + 0.00145605032661779;
    p = p * z + 0.00359210013672611;
    p = p * z + 0.008863238001235434;
    p = p * z + 0.021869488393930596;
    p = p * z + 0.053968253973120515;
    p = p * z + 0.133333333333249;
    p = p * z + 0.33333333333333387;
    return r + (r * (z * p) + low * (1 + z));
}
