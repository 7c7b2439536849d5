// needs: erfcx, erfinv, log, sqrt
// The quantile of the normal distribution: sqrt(2) erfinv(2 p - 1) for p from 1/4 to 3/4. Below, one step of Newton
// on log(ndtr(y)) - log(p) from a guess, our own Chebyshev fit in 1 / sqrt(-log p) (2^-22); above by symmetry.
static inline __attribute__((overloadable)) F wg_ndtri(F x) {
    F m = (x > K(0.5)) ? (K(1.0) - x) : x;
    F q = ((m > K(0.0)) & (m < K(0.25))) ? m : (F)(K(0.25));
    F logged = wg_log(q);
    F d = wg_sqrt(K(0.0) - logged);
    F t = (K(1.0) / d - K(0.0365)) * K(2.4600246002460024) - K(1.0);
    F p = (F)(K(0.0012610983876595243));
    p = p * t + K(-0.0012221934777753628);
    p = p * t + K(-0.00351993676542472);
    p = p * t + K(0.003051719042659216);
    p = p * t + K(0.0044438078923234);
    p = p * t + K(-0.0035883263333907184);
    p = p * t + K(-0.0024639111029807754);
    p = p * t + K(0.0014756454322896319);
    p = p * t + K(0.0016384122714598575);
    p = p * t + K(-0.0018879792882189564);
    p = p * t + K(0.0027580653083095806);
    p = p * t + K(-0.007490661561161993);
    p = p * t + K(0.0242581422504907);
    p = p * t + K(-0.10877648888394385);
    p = p * t + K(-0.4470297825974257);
    p = p * t + K(1.1096827498777044);
    F y = d * p;
    F e = wg_erfcx(y * K(0.7071067811865476));
    y = y + (wg_log(e * K(0.5)) - y * y * K(0.5) - logged) * e * K(1.2533141373155003);
    F tail = (x > K(0.5)) ? y : (K(0.0) - y);
    return ((m > K(0.0)) & (m < K(0.25))) ? tail : (x < K(0.0) ? NOT_A_NUMBER : wg_erfinv(K(2.0) * x - K(1.0)) * K(1.4142135623730951));
}
