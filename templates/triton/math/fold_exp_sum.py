# needs: exp, fold_max
# Milakov & Gimelshein 2018. One exponential for an element: either the sum shrinks or the element does. Equal
# infinities differ by 0: a lane that has seen only -inf counts them, and its sum is then multiplied by exp(-inf).
@triton.jit
def wg_fold_exp_sum(m, s, x):
    """Add an element to a state: m, the maximum of all x, and s, the sum of exp(x - m)."""
    d = tl.where(x == m, 0.0, x - m)
    e = wg_exp(tl.where(d > 0, -d, d))
    s = tl.where(d > 0, s * e + 1.0, s + e)
    return wg_fold_max(m, x), s
