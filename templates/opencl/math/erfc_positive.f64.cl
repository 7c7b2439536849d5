// needs: exp
// erfc(a) for a >= 0: e^(-a^2) P(q) / (1 + 2 a) with q = (a - 4) / (a + 4), the form of Shepherd & Laframboise (1981);
// P our own minimax fit (2^-61). The rounding error of a^2 (Dekker) corrects the exponential.
static inline __attribute__((overloadable)) F wg_erfc_positive(F a) {
#pragma clang fp contract(off)
    a = a > K(30.0) ? (F)(K(30.0)) : a;
    F h = AS_F(AS_I(a) & ((I)(-1) << 27)), l = a - h, s = a * a, e = ((h * h - s) + 2 * h * l) + l * l;
    F q = (a - 4) / (a + 4);
    F x = wg_exp(-s);
    {
#pragma clang fp contract(fast)
        F p = (F)(4.0379424678822704e-11);
        p = p * q + -1.3737798764951375e-10;
        p = p * q + -5.285810942272393e-10;
        p = p * q + 1.789816091020318e-09;
        p = p * q + 3.925102793573399e-09;
        p = p * q + -1.4708217362527247e-08;
        p = p * q + -2.1826179287558167e-08;
        p = p * q + 1.1009540179408372e-07;
        p = p * q + 7.883713303734094e-08;
        p = p * q + -8.249180031961397e-07;
        p = p * q + 2.9097643420601303e-07;
        p = p * q + 5.709204926191428e-06;
        p = p * q + -1.122078812762194e-05;
        p = p * q + -2.4398944088946508e-05;
        p = p * q + 0.0001506213191798314;
        p = p * q + -0.0001992567758833028;
        p = p * q + -0.0007577732221834935;
        p = p * q + 0.00503196999268944;
        p = p * q + -0.016197734065568972;
        p = p * q + 0.03716751553592733;
        p = p * q + -0.0663303658116815;
        p = p * q + 0.09373283499843835;
        p = p * q + -0.10103906603632357;
        p = p * q + 0.06809705425469038;
        p = p * q + 0.015379652102620016;
        p = p * q + -0.1396211168405625;
        p = p * q + 1.2329951186255526;
        F r = x * (p / (1 + 2 * a));
        return r - r * e;
    }
}
