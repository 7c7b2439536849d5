# needs:
@triton.jit
def wg_way(place, stride, WAY: tl.constexpr):
    """The offsets of elements number `place` of a line. WAY: the stride if it is 1, 0 or -1, else 2."""
    if WAY == 1:
        far = place
    elif WAY == -1:
        far = -place
    elif WAY == 0:
        far = place * 0
    else:
        far = place * stride
    return far
