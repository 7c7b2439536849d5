# needs:
@triton.jit
def wg_way(place, stride, WAY: tl.constexpr):
    """How far elements number `place` of a line are from its first. WAY: the stride where it is 1, 0 or -1, else 2."""
    if WAY == 1:
        far = place
    elif WAY == -1:
        far = -place
    elif WAY == 0:
        far = place * 0
    else:
        far = place * stride
    return far
