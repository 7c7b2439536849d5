# needs: row_start
@triton.jit
def wg_line_start(place, sizes, strides, RANK: tl.constexpr, UNIT: tl.constexpr):
    """The offsets of elements number `place` of dimensions `sizes`. UNIT: the last dimension is contiguous."""
    if UNIT:
        if RANK == 1:
            start = place
        else:
            last = sizes[RANK - 1]
            start = wg_row_start(place // last, sizes, strides, RANK - 1) + place % last
    elif RANK == 1:
        start = place * strides[0]
    else:
        start = wg_row_start(place, sizes, strides, RANK)
    return start
