# needs:
# The hardware's 2^x (2 units in the last place of float32), of a product that is rounded once: relative error below
# 2^-16 for results that half precision can represent.
@triton.jit
def wg_exp_scaled(x, k: tl.constexpr):
    """exp(x) * 2^k."""
    return tl.exp2(x * 1.4426950408889634 + k)
