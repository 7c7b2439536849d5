# sigmoid(input): out = logistic(input)
@triton.jit
def sigmoid_value(input, C: tl.constexpr):
    return wg_logistic(input)


@triton.jit
def sigmoid_flat(
    x0, y0, n, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr,
    CLASS0: tl.constexpr, NUMBER0: tl.constexpr,
):
    """BLOCK elements per program: results are contiguous; operands are contiguous, one element, or a number."""
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v0 = wg_read(x0, i, inside, numbers, CLASS0, NUMBER0, C)
    r0 = sigmoid_value(v0, C)
    wg_store(y0 + i, r0, inside)


@triton.jit
def sigmoid_rows(
    x0, y0, rows, n, across, sizes,
    stride0, stride1, step0, step1, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTER: tl.constexpr,
    CLASS0: tl.constexpr, BESIDE0: tl.constexpr, NUMBER0: tl.constexpr,
    CLASS1: tl.constexpr,
):
    """One tile of ROWS by COLUMNS per program, for operands with any strides; `across` tiles per row of tiles."""
    tile = tl.program_id(0)
    row = (tile // across).to(INDEX) * ROWS + tl.arange(0, ROWS)
    column = (tile % across).to(INDEX) * COLUMNS + tl.arange(0, COLUMNS)
    row_inside = row < rows
    inside = row_inside[:, None] & (column < n)[None, :]
    o0 = wg_line_start(row, sizes, stride0, OUTER, BESIDE0)
    v0 = wg_read_tile(x0, o0, column, step0, row_inside, inside, numbers, CLASS0, NUMBER0, C)
    r0 = sigmoid_value(v0, C)
    o1 = wg_row_start(row, sizes, stride1, OUTER)
    wg_store_tile(y0, o1, column, step1, inside, r0, CLASS1)
