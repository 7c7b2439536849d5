# needs: row_start
@triton.jit
def wg_line_start(place, sizes, strides, RANK: tl.constexpr, UNIT: tl.constexpr):
    """Where elements number `place` of dimensions `sizes` lie. UNIT: there is one dimension, and its elements touch."""
    if RANK == 1:
        if UNIT:
            start = place
        else:
            start = place * strides[0]
    else:
        start = wg_row_start(place, sizes, strides, RANK)
    return start
