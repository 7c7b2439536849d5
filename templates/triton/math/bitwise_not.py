# needs:
@triton.jit
def wg_bitwise_not(x, truth: tl.constexpr):
    """Every bit inverted; with `truth`, 0 and 1 exchanged."""
    if truth:
        r = x ^ 1
    else:
        r = ~x
    return r
