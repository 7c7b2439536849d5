// needs: log_split, log_tail
// Like log, with the exponent of u = 1 + x but f = (x 2^-e) + (2^-e - 1) from x itself, so that no bit of x is lost.
// Largest error measured: 1.40 ULP in float, 1.37 in double.
static inline __attribute__((overloadable)) F wg_log1p(F x) {
    F u = 1 + x;
    I n = (AS_I(u) - AS_I((F)(K(0.70710678118654752440)))) >> MANTISSA;
    F e = INT_TO_F(n), scale = AS_F((BIAS - n) << MANTISSA);
    F f = x * scale + (scale - 1);
    f = n > MANTISSA + 2 ? AS_F(AS_I(u) - (n << MANTISSA)) - 1 : f;  // where 2^-e may be subnormal; u == x there
    F r = e * K(0.693359375) + (f + (e * K(-2.121944400546905827679e-4) + wg_log_tail(f)));
    r = wg_log_ends(u, r);
    return x == 0 ? x : r;
}
