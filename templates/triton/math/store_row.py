# needs: join_columns, store
@triton.jit
def wg_store_row(p, values, x, width, inside, FIRST: tl.constexpr, COUNT: tl.constexpr, UNIT: tl.constexpr):
    """Store COUNT vectors of a tuple, from number FIRST, as elements x, x + 1, ... of one row per lane.

    Args:
        p: Pointers to the rows' elements x.
        x: Positions in the rows, multiples of UNIT.
        width: Elements of a row, a multiple of UNIT.
        inside: Lanes that store at all.
        UNIT: Elements that are stored at once, a power of two that divides COUNT.
    """
    for k in tl.static_range(COUNT // UNIT):
        in_row = inside & (x + k * UNIT < width)
        if UNIT == 1:
            wg_store(p + k, values[FIRST + k], in_row)
        else:
            block = wg_join_columns(values, FIRST + k * UNIT, 1, UNIT)
            wg_store(p[:, None] + (k * UNIT + tl.arange(0, UNIT))[None, :], block, in_row[:, None])
