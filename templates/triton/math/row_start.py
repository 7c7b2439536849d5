# needs:
@triton.jit
def wg_row_start(row, sizes, strides, OUTER: tl.constexpr):
    """The offset of row number `row`: its position in the outer dimensions `sizes`, times `strides`."""
    start = row * 0
    for d in tl.static_range(OUTER - 1, -1, -1):
        start += row % sizes[d] * strides[d]
        row = row // sizes[d]
    return start
