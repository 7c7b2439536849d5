# mul(input, other): out = input * other
@triton.jit
def mul_value(input, other, C: tl.constexpr):
    return input * other


@triton.jit
def mul_flat(
    x0, x1, y0, n, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr,
    CLASS0: tl.constexpr, NUMBER0: tl.constexpr,
    CLASS1: tl.constexpr, NUMBER1: tl.constexpr,
):
    """BLOCK elements per program: results are contiguous; operands are contiguous, one element, or a number."""
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v0 = wg_read(x0, i, inside, numbers, CLASS0, NUMBER0, C)
    v1 = wg_read(x1, i, inside, numbers, CLASS1, NUMBER1, C)
    r0 = mul_value(v0, v1, C)
    wg_store(y0 + i, r0, inside)


@triton.jit
def mul_rows(
    x0, x1, y0, rows, n, across, sizes,
    stride0, stride1, stride2, step0, step1, step2, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTER: tl.constexpr,
    CLASS0: tl.constexpr, BESIDE0: tl.constexpr, NUMBER0: tl.constexpr,
    CLASS1: tl.constexpr, BESIDE1: tl.constexpr, NUMBER1: tl.constexpr,
    CLASS2: tl.constexpr,
):
    """One tile of ROWS by COLUMNS per program, for operands with any strides; `across` tiles per row of tiles."""
    tile = tl.program_id(0)
    row = (tile // across).to(INDEX) * ROWS + tl.arange(0, ROWS)
    column = (tile % across).to(INDEX) * COLUMNS + tl.arange(0, COLUMNS)
    row_inside = row < rows
    inside = row_inside[:, None] & (column < n)[None, :]
    o0 = wg_line_start(row, sizes, stride0, OUTER, BESIDE0)
    v0 = wg_read_tile(x0, o0, column, step0, row_inside, inside, numbers, CLASS0, NUMBER0, C)
    o1 = wg_line_start(row, sizes, stride1, OUTER, BESIDE1)
    v1 = wg_read_tile(x1, o1, column, step1, row_inside, inside, numbers, CLASS1, NUMBER1, C)
    r0 = mul_value(v0, v1, C)
    o2 = wg_row_start(row, sizes, stride2, OUTER)
    wg_store_tile(y0, o2, column, step2, inside, r0, CLASS2)
