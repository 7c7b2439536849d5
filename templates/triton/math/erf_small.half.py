# needs:
@triton.jit
def wg_erf_small(x):
    """erf(x) for |x| < 1: x + x P(x^2), our own minimax fit (2^-15)."""
    z = x * x
    p = z * -0.018495426 + 0.10802775
    p = p * z - 0.3752107
    p = p * z + 0.1283517
    return x + x * p
