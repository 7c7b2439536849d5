// needs: trunc
// hermite.f64.cl for devices without double. Terms of the recurrence cancel, so values are kept in two floats: `r` and
// `low`. Products of halves of 12 bits are exact, and so is their difference with its error (TwoSum, Knuth 1969).
static inline __attribute__((overloadable)) F wg_hermite(F c, F n, F x) {
    M valid = (n == n) & (n <= K(1e6));
    n = valid ? wg_trunc(n) : (F)(K(-1.0));
    F x_half = AS_F(AS_I(x) & ~(I)(0xfff));
    F k = (F)(K(1.0)), before = (F)(K(1.0)), low_before = (F)(K(0.0)), r = c * x, low = (F)(K(0.0));
    for (M step = k < n; ANY(step); step = (k < n) & (AS_F(AS_I(r) & ~SIGN) < INF)) {
        F m_half = AS_F(AS_I(k) & ~(I)(0xfff)), r_half = AS_F(AS_I(r) & ~(I)(0xfff));
        F before_half = AS_F(AS_I(before) & ~(I)(0xfff));
        F a = x_half * r_half, b = m_half * before_half, next = a - b, part = next - a;
        F error = (a - (next - part)) - (b + part);
        error = error + (x_half * (r - r_half) + (x - x_half) * r + x * low);
        error = error - (m_half * (before - before_half) + (k - m_half) * before + k * low_before);
        F total = next + error, rest = total - next;
        rest = (next - (total - rest)) + (error - rest);
        M finite = AS_F(AS_I(next) & ~SIGN) < INF;
        before = step ? r : before;
        low_before = step ? low : low_before;
        r = step ? c * (finite ? total : next) : r;
        low = step ? (finite ? c * rest : (F)(K(0.0))) : low;
        k = k + 1;
    }
    r = n < 1 ? (n < 0 ? (F)(K(0.0)) : (F)(K(1.0))) : r;
    return valid ? r : NOT_A_NUMBER;
}
