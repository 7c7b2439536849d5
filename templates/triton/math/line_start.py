# needs: row_start
@triton.jit
def wg_line_start(position, sizes, strides, RANK: tl.constexpr, UNIT: tl.constexpr):
    """The offsets of elements number `position` of dimensions `sizes`. UNIT: the last dimension is contiguous."""
    if UNIT:
        if RANK == 1:
            start = position
        else:
            last = sizes[RANK - 1]
            start = wg_row_start(position // last, sizes, strides, RANK - 1) + position % last
    elif RANK == 1:
        start = position * strides[0]
    else:
        start = wg_row_start(position, sizes, strides, RANK)
    return start
