# needs:
@triton.jit
def wg_way(position, stride, WAY: tl.constexpr):
    """The offsets of elements number `position` of a line. WAY: the stride if it is 1, 0 or -1, else 2."""
    if WAY == 1:
        offset = position
    elif WAY == -1:
        offset = -position
    elif WAY == 0:
        offset = position * 0
    else:
        offset = position * stride
    return offset
