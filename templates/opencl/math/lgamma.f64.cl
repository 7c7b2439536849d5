// needs: log, round, turn
// On [1, 3]: (x - 1)(x - 2) P(x - 2), our own minimax fit (2^-57), so that the zeros at 1 and 2 keep their relative
// accuracy; [0, 1) and (3, 8) by lgamma(x + 1) = lgamma(x) + log x; from 8 on, Stirling's series
// (Abramowitz & Stegun 6.1.41); below 0, by reflection (6.1.17), where the zeros between poles are accurate absolutely.
// Largest error measured: 2.5 ULP for x > 0; below 0, 1e-14 relative where |lgamma| > 0.1.
static inline __attribute__((overloadable)) F wg_lgamma(F x) {
    M minus = x < 0;
    F y = minus ? 1 - x : x;
    M far = y >= 8, low = y < 1;
    F t = low ? y + 1 : y, product = low ? y : (F)(1);
#pragma unroll
    for (int i = 0; i < 5; i++) {
        M step = (t > 3) & !far;
        product = step ? product * (t - 1) : product;
        t = step ? t - 1 : t;
    }
    F u = low ? y - 1 : t - 2, logged = wg_log(far ? y : product);
    F p = (F)(-8.213229753294747e-10);
    p = p * u + 1.5824781161555247e-09;
    p = p * u + 2.4850086714201313e-09;
    p = p * u + -4.363177825877325e-09;
    p = p * u + -8.998559521240892e-09;
    p = p * u + 1.6339667130157997e-08;
    p = p * u + -7.047131156398162e-10;
    p = p * u + 5.668056457969783e-09;
    p = p * u + -5.2131042284078855e-08;
    p = p * u + 1.0446514199944326e-07;
    p = p * u + -1.8606017469540718e-07;
    p = p * u + 3.957045805093161e-07;
    p = p * u + -8.555200066610614e-07;
    p = p * u + 1.8114850603827136e-06;
    p = p * u + -3.8464999664828524e-06;
    p = p * u + 8.22120232475864e-06;
    p = p * u + -1.7661859112488322e-05;
    p = p * u + 3.816908391695938e-05;
    p = p * u + -8.30950993337301e-05;
    p = p * u + 0.00018255261432518151;
    p = p * u + -0.00040570740000312995;
    p = p * u + 0.0009153769241320524;
    p = p * u + -0.0021081308338253323;
    p = p * u + 0.004998641164622912;
    p = p * u + -0.01238419219337446;
    p = p * u + 0.03296500062115698;
    p = p * u + -0.1003173016743539;
    p = p * u + 0.42278433509846713;
    F near = (u + 1) * (u * p) + (low ? -logged : logged);
    F v = 1 / y, z = v * v;
    F s = (F)(-0.029550653594771241830);
    s = s * z + 0.0064102564102564102564;
    s = s * z + -0.0019175269175269175269;
    s = s * z + 0.00084175084175084175084;
    s = s * z + -0.00059523809523809523810;
    s = s * z + 0.00079365079365079365079;
    s = s * z + -0.0027777777777777777778;
    s = s * z + 0.083333333333333333333;
    F r = far ? (y - 0.5) * (logged - 1) + (0.41893853320467274178 + v * s) : near;
    F sine = wg_sin_turn((x - wg_round(x)) * 0.5);
    F reflected = (1.1447298858494001741 - wg_log(AS_F(AS_I(sine) & ~SIGN))) - r;
    r = minus ? (sine == 0 ? INF : reflected) : r;
    F infinite = x == x ? INF : x;
    return ((y < INF) & (x == x)) ? r : infinite;
}
