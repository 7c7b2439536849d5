// needs: log_split
// log2 of a positive double to 2^-43, and 2^x to 2^-40: enough for a power rounded to float. Own minimax fits.
static inline __attribute__((overloadable)) F wg_log2_wide(F x) {
    F e, f = wg_log_split(x, &e), s = f / (2 + f), z = s * s;
    F p = (F)(0.2829175400260188);
    p = p * z + 0.3199044803232388;
    p = p * z + 0.41220928210890484;
    p = p * z + 0.5770779420690869;
    p = p * z + 0.9617966941143694;
    p = p * z + 2.8853900817778495;
    return e + s * p;
}
static inline __attribute__((overloadable)) F wg_exp2_wide(F x) {
    x = x < -1000.0 ? (F)(-1000.0) : x;
    x = x > 1000.0 ? (F)(1000.0) : x;
    F t = x + MAGIC, r = x - (t - MAGIC);
    F p = (F)(1.3263791988030997e-06);
    p = p * r + 1.5310126185841216e-05;
    p = p * r + 0.00015403413838651646;
    p = p * r + 0.001333345047655327;
    p = p * r + 0.009618129222332508;
    p = p * r + 0.05550410941134401;
    p = p * r + 0.2402265069553798;
    p = p * r + 0.693147180546057;
    p = p * r + 1;
    return p * AS_F((AS_I(t) - AS_I((F)(MAGIC)) + 1023) << 52);
}
