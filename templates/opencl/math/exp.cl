// needs: exp_scaled
static inline __attribute__((overloadable)) F wg_exp(F x) { return wg_exp_scaled(x, (I)(0)); }
