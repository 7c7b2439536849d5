// needs: erf_table, lookup
// With table look-ups by permutation instructions: x times a polynomial of erf(a) / a around the centre next to a = |x|.
// Otherwise two polynomials evaluated in the same steps: up to 1.14 one of 1 - erf(a) / a in a^2, and beyond it one of the
// fourth root of erfc(a), which needs fewer terms than erfc(a) does and no exponential: our own minimax fits.
// Largest error measured: 1.01 ULP by tables (subnormal x; 0.70 otherwise), 1.25 elsewhere.
static inline __attribute__((overloadable)) F wg_erf(F x) {
#if defined(__AVX512F__)
    x = x < K(-3.94) ? (F)(K(-3.94)) : x;
    x = x > K(3.94) ? (F)(K(3.94)) : x;
    F a = AS_F(AS_I(x) & ~SIGN);
    I j = AS_I(a * K(3.764706) + MAGIC);
    F t = a - wg_lookup(wg_erf_table, j);
    F p = wg_lookup(wg_erf_table + 6, j);
    p = p * t + wg_lookup(wg_erf_table + 5, j);
    p = p * t + wg_lookup(wg_erf_table + 4, j);
    p = p * t + wg_lookup(wg_erf_table + 3, j);
    p = p * t + wg_lookup(wg_erf_table + 2, j);
    return x * wg_lookup(wg_erf_table + 1, j) + x * t * p;
#else
    F a = AS_F(AS_I(x) & ~SIGN);
    a = a > K(3.9375) ? (F)(K(3.9375)) : a;
    I m = a < K(1.14);
    F u = m ? a * a : a - 1;
    F p = m ? (F)(K(8.428647e-06)) : (F)(K(-0.00018640929));
    p = p * u + (m ? (F)(K(-0.000107944485)) : (F)(K(0.0020210077)));
    p = p * u + (m ? (F)(K(0.00084130117)) : (F)(K(-0.006684383)));
    p = p * u + (m ? (F)(K(-0.0052156583)) : (F)(K(-0.0025812814)));
    p = p * u + (m ? (F)(K(0.026863301)) : (F)(K(0.050185453)));
    p = p * u + (m ? (F)(K(-0.112837404)) : (F)(K(0.0045094118)));
    p = p * u + (m ? (F)(K(0.37612635)) : (F)(K(-0.41551247)));
    p = p * u + (m ? (F)(K(-0.12837917)) : (F)(K(0.629771)));
    F s = p * p;
    p = m ? p : s * s;
    F y = m ? x : AS_F((AS_I(x) & SIGN) | AS_I((F)(1)));
    return y - y * p;
#endif
}
