// needs: log_split, pow_ends
// The method of fdlibm's e_pow.c without its table: log2 |x| in two doubles from s = f / (2 + f), itself in two doubles, times y, and
// 2^ of the sum. A number ends in ..h when its low 27 bits are cleared, so that products of two such are exact.
// The polynomials are our own minimax fits (2^-65 of log's correction, 2^-64 of 2^r).
// Largest error measured: 1.26 ULP.
#define WG_HIGH(v) AS_F(AS_I(v) & ((I)(-1) << 27))
static inline __attribute__((overloadable)) F wg_pow_full(F x, F y) {
#pragma OPENCL FP_CONTRACT OFF
#pragma clang fp contract(off)
    F e, f = wg_log_split(AS_F(AS_I(x) & ~SIGN), &e), g = y;
    g = g > 0x1p70 ? (F)(0x1p70) : g;
    g = g < -0x1p70 ? (F)(-0x1p70) : g;
    F d = 2 + f, dh = WG_HIGH(d), dl = (2 - dh) + f, s = f / d, sh = WG_HIGH(s);
    F sl = ((f - sh * dh) - sh * dl) / d;
    F z = s * s, p = (F)(0.19795235926824079);
    p = p * z + 0.19885151663731224;
    p = p * z + 0.23080138948334097;
    p = p * z + 0.27272676493849174;
    p = p * z + 0.33333333780430136;
    p = p * z + 0.4285714285514702;
    p = p * z + 0.6000000000000338;
    p = z * z * p + sl * (sh + s);                          // log(1 + f) = 2/3 s (3 + s^2 + p)
    F z2 = sh * sh, th = WG_HIGH(3 + z2 + p), tl = p - ((th - 3) - z2);
    F u = sh * th, v = sl * th + tl * s, ph = WG_HIGH(u + v), pl = v - (ph - u);
    F zh = 0.961796700954437255859375 * ph;                  // 2 / (3 ln 2) in two parts
    F zl = -7.02846165095275826516e-09 * ph + pl * 0.961796693925975554329;
    F t1 = WG_HIGH((zh + zl) + e), t2 = zl - ((t1 - e) - zh);
    F gh = WG_HIGH(g), l = (g - gh) * t1 + g * t2, h = gh * t1;
    l = ((h > 4096) | (h < -4096)) ? (F)(0) : l;
    h = h > 4096 ? (F)(4096) : h;
    h = h < -4096 ? (F)(-4096) : h;
    F t = (h + l) + MAGIC, n = t - MAGIC, r = (h - n) + l;
    I i = AS_I(t) - AS_I((F)(MAGIC));
    i = i > 2000 ? (I)(2000) : i;
    i = i < -2000 ? (I)(-2000) : i;
    I k = i >> 1;
    p = (F)(2.57417745070239e-11);
    p = p * r + 4.456692950242313e-10;
    p = p * r + 7.054888278204402e-09;
    p = p * r + 1.0178051088904249e-07;
    p = p * r + 1.3215486832969688e-06;
    p = p * r + 1.5252733856507298e-05;
    p = p * r + 0.00015403530393341236;
    p = p * r + 0.0013333558146390177;
    p = p * r + 0.009618129107628496;
    p = p * r + 0.0555041086648217;
    p = p * r + 0.24022650695910072;
    p = p * r + 0.6931471805599453;
    p = (1 + p * r) * AS_F((k + 1023) << 52) * AS_F((i - k + 1023) << 52);
    return wg_pow_ends(x, y, p);
}
#undef WG_HIGH
