// needs:
// 2^x = 2^n (1 + r P(r)), n = round(x), r = x - n exact; P our own minimax fit (relative error 2^-58).
// Largest error measured: 0.88 ULP.
static inline __attribute__((overloadable)) F wg_exp2(F x) {
    x = x < -1080.0 ? (F)(-1080.0) : x;
    x = x > 1030.0 ? (F)(1030.0) : x;
    F t = x + MAGIC, n = t - MAGIC, r = x - n;
    I i = AS_I(t) - AS_I((F)(MAGIC)), h = i >> 1;
    F p = (F)(4.457415448022319e-10);
    p = p * r + 7.073897997603927e-09;
    p = p * r + 1.0178046265355936e-07;
    p = p * r + 1.3215434609470128e-06;
    p = p * r + 1.5252733868040478e-05;
    p = p * r + 0.00015403530458466916;
    p = p * r + 0.0013333558146378475;
    p = p * r + 0.009618129107593052;
    p = p * r + 0.05550410866482174;
    p = p * r + 0.24022650695910133;
    p = p * r + 0.6931471805599453;
    F y = 1 + r * p;
    return (y * AS_F((h + 1023) << 52)) * AS_F((i - h + 1023) << 52);
}
