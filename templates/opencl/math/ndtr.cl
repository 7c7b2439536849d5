// needs: erfc, erfcx, exp, upper
// The normal distribution: erfc(-x / sqrt(2)) / 2, and below -1 erfcx(-x / sqrt(2)) e^(-x^2 / 2) / 2, in which x is
// split as in erfcx.
static inline __attribute__((overloadable)) F wg_ndtr(F x) {
    F b = (x < K(-1.0)) ? x : (F)(K(-1.0));
    F h = wg_upper(b);
    F t = wg_erfcx(b * K(-0.7071067811865476)) * K(0.5);
    t = t * wg_exp(h * h * K(-0.5)) * wg_exp((b - h) * (b + h) * K(-0.5));
    t = (b < K(-40.0)) ? (F)(K(0.0)) : t;
    return (x < K(-1.0)) ? t : (wg_erfc(x * K(-0.7071067811865476)) * K(0.5));
}
