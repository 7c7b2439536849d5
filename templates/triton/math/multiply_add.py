# needs:
@triton.jit
def wg_multiply_add(a, b, total, C: tl.constexpr):
    """`total` plus the product of a and b, all of the compute type C, for floats with one rounding."""
    if C == tl.float32 or C == tl.float64:
        total = tl.fma(a, b, total)
    else:
        total += a * b
    return total
