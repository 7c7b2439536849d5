# needs: split_columns
@triton.jit
def wg_row_elements(
    p,
    x,
    width,
    step,
    inside,
    OTHER: tl.constexpr,
    C: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    UNIT: tl.constexpr,
):
    """The elements x + LOW to x + HIGH of one row per lane, as C: a tuple of vectors. OTHER outside of the row.

    Args:
        p: Pointers to the rows' elements x.
        x: Positions in the rows, multiples of UNIT.
        width: Elements of a row, a multiple of UNIT.
        step: Distance of a row's elements, which is 1 unless UNIT is 1.
        inside: Lanes that read at all.
        UNIT: Elements that a load may take at once, a power of two.
    """
    elements = ()
    for k in tl.static_range(LOW // UNIT, HIGH // UNIT + 1):
        in_row = inside & (x + k * UNIT >= 0) & (x + k * UNIT < width)
        if LOW < HIGH and LOW + 1 < k * UNIT + UNIT and k * UNIT + 1 <= HIGH and UNIT > 1:  # two elements at least
            pointers = p[:, None] + (k * UNIT + tl.arange(0, UNIT))[None, :]
            columns = wg_split_columns(tl.load(pointers, mask=in_row[:, None], other=OTHER), UNIT)
            for j in tl.static_range(UNIT):
                if k * UNIT + j >= LOW and k * UNIT + j <= HIGH:
                    elements = elements + (columns[j].to(C),)
        else:
            for j in tl.static_range(k * UNIT, k * UNIT + UNIT):
                if j >= LOW and j <= HIGH:
                    elements = elements + (tl.load(p + j * step, mask=in_row, other=OTHER).to(C),)
    return elements
