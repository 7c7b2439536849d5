# needs:
@triton.jit
def wg_half_pi_rest(C: tl.constexpr):
    """The difference between pi/2 and pi/2 rounded to C."""
    if C == tl.float64:
        r = tl.full((), 6.123233995736766e-17, C)
    else:
        r = tl.full((), -4.37113883e-08, C)
    return r
