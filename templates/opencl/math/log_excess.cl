// needs: log
// m - log(1 + m) without cancellation, where l is 1 + m. From -1/2 to 1, with r = m / (2 + m), m - 2 atanh(r) =
// r (m - 2 r^2 P(r^2)), P our own Chebyshev fit (2^-63).
static inline __attribute__((overloadable)) F wg_log_excess(F m, F l) {
    M near = (m >= K(-0.5)) & (m <= K(1.0));
    F n = near ? m : (F)(K(0.0));
    F r = n / (K(2.0) + n);
    F w = r * r;
    F p = (F)(K(0.07615631309714492));
    p = p * w + K(0.03167055425885123);
    p = p * w + K(0.04971012448277368);
    p = p * w + K(0.05240199617182637);
    p = p * w + K(0.05883998883620518);
    p = p * w + K(0.06666588474569089);
    p = p * w + K(0.07692310126902081);
    p = p * w + K(0.09090909043002827);
    p = p * w + K(0.11111111111665993);
    p = p * w + K(0.1428571428571097);
    p = p * w + K(0.20000000000000007);
    p = p * w + K(0.3333333333333333);
    return near ? r * (n - K(2.0) * w * p) : m - wg_log(l);
}
