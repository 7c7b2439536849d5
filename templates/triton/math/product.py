# needs:
@triton.jit
def wg_product(a, b, total, D: tl.constexpr, PRECISION: tl.constexpr):
    """`total` plus the matrix product of a (m, k) and b (k, n), on tensor cores if they support the dtype."""
    if D == tl.float64:
        total += tl.sum(a.to(D)[:, :, None] * b.to(D)[None, :, :], 1)
    else:
        total = tl.dot(a.to(D), b.to(D), total, input_precision=PRECISION, out_dtype=total.dtype)
    return total
