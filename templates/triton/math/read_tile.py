# needs:
@triton.jit
def wg_read_tile(
    p, start, column, step, row_inside, inside, numbers, CLASS: tl.constexpr, NUMBER: tl.constexpr, C: tl.constexpr
):
    """Load an operand for rows that begin at `start`, as C: class 3 (a number of the call), 0 (one element per row),
    1 (contiguous) or 2 (`step` apart)."""
    if CLASS == 3:
        value = numbers[NUMBER].to(C)
    elif CLASS == 0:
        value = tl.load(p + start[:, None], mask=row_inside[:, None], other=0).to(C)
    elif CLASS == 1:
        value = tl.load(p + (start[:, None] + column[None, :]), mask=inside, other=0).to(C)
    else:
        value = tl.load(p + (start[:, None] + (column * step)[None, :]), mask=inside, other=0).to(C)
    return value
