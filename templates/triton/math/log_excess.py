# needs: log
# From -1/2 to 1, with r = m / (2 + m), m - 2 atanh(r) = r (m - 2 r^2 P(r^2)), P our own Chebyshev fit (2^-63).
@triton.jit
def wg_log_excess(m, sum):
    """m - log(1 + m) without cancellation, in float64, where sum is 1 + m."""
    near = (m >= -0.5) & (m <= 1.0)
    n = tl.where(near, m, 0.0)
    r = n / (2.0 + n)
    w = r * r
    p = 0.07615631309714492 * w + 0.03167055425885123
    p = p * w + 0.04971012448277368
    p = p * w + 0.05240199617182637
    p = p * w + 0.05883998883620518
    p = p * w + 0.06666588474569089
    p = p * w + 0.07692310126902081
    p = p * w + 0.09090909043002827
    p = p * w + 0.11111111111665993
    p = p * w + 0.1428571428571097
    p = p * w + 0.20000000000000007
    p = p * w + 0.3333333333333333
    return tl.where(near, r * (n - 2.0 * w * p), m - wg_log(sum))
