# softmax(input, dim): out = exp(input - detach(max(input))) * (1 / sum(exp(input - detach(max(input)))))
@triton.jit
def softmax_sweep0(input, C: tl.constexpr):
    return input


@triton.jit
def softmax_sweep1(input, r0, C: tl.constexpr):
    return wg_exp(input - r0)


@triton.jit
def softmax_let_w0(r1, C: tl.constexpr):
    return wg_div(tl.full((), 1, C), r1)


@triton.jit
def softmax_top_r1(r0, C: tl.constexpr):
    return r0


@triton.jit
def softmax_value(input, r0, w0, C: tl.constexpr):
    return wg_exp(input - r0) * w0


@triton.jit
def softmax_whole(
    x0, y1, rows, n, run, size, inner,
    stride0, stride1, step0, step1, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OUTER: tl.constexpr,
    INNER: tl.constexpr,
    BESIDE0: tl.constexpr, STEP0: tl.constexpr, BESIDE1: tl.constexpr, STEP1: tl.constexpr,
):
    """ROWS rows per program, each loaded once as a whole: BLOCK is at least its length."""
    column = tl.arange(0, BLOCK).to(INDEX)
    length = n.to(C)
    q0 = wg_line_start(column, inner, step0, INNER, STEP0)
    q1 = wg_line_start(column, inner, step1, INNER, STEP1)
    position = column[None, :].to(tl.int64)
    row = tl.program_id(0).to(INDEX) * ROWS + tl.arange(0, ROWS)
    in_bounds = row < rows
    o0 = wg_line_start(row, size, stride0, OUTER, BESIDE0)
    o1 = wg_line_start(row, size, stride1, OUTER, BESIDE1)
    inside = in_bounds[:, None] & (column < n)[None, :]
    v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
    a_r0 = softmax_sweep0(v0, C)
    r0 = tl.reduce(tl.where(inside, a_r0, float("-inf")), 1, wg_fold_max)[:, None]
    a_r1 = softmax_sweep1(v0, r0, C)
    r1 = tl.reduce(tl.where(inside, a_r1, 0), 1, wg_fold_sum)[:, None]
    w0 = softmax_let_w0(r1, C)
    z1 = softmax_value(v0, r0, w0, C)
    wg_store(y1 + (o1[:, None] + q1[None, :]), z1, inside)


@triton.jit
def softmax_swept(
    x0, y1, rows, n, run, size, inner,
    stride0, stride1, step0, step1, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OUTER: tl.constexpr,
    INNER: tl.constexpr,
    BESIDE0: tl.constexpr, STEP0: tl.constexpr, BESIDE1: tl.constexpr, STEP1: tl.constexpr,
):
    """Long rows: one per program, BLOCK elements at a time."""
    length = n.to(C)
    full_blocks = n // BLOCK * BLOCK
    row = tl.program_id(0).to(INDEX) + tl.arange(0, ROWS)
    in_bounds = row < rows
    o0 = wg_line_start(row, size, stride0, OUTER, BESIDE0)
    o1 = wg_line_start(row, size, stride1, OUTER, BESIDE1)
    s_r0 = tl.full((ROWS, BLOCK), float("-inf"), C)
    s_r1 = tl.full((ROWS, BLOCK), 0, C)
    for start in range(0, full_blocks, BLOCK):
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        position = column[None, :].to(tl.int64)
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :])).to(C)
        a_r0 = softmax_sweep0(v0, C)
        s_r0, s_r1 = wg_fold_exp_sum(s_r0, s_r1, a_r0)
    if full_blocks < n:
        start = full_blocks
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        position = column[None, :].to(tl.int64)
        inside = in_bounds[:, None] & (column < n)[None, :]
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        a_r0 = softmax_sweep0(v0, C)
        s_r0, s_r1 = wg_fold_exp_sum(s_r0, s_r1, tl.where(inside, a_r0, float("-inf")))
    r0 = tl.reduce(s_r0, 1, wg_fold_max)[:, None]
    r1 = tl.reduce(s_r1 * wg_exp(s_r0 - softmax_top_r1(r0, C)), 1, wg_fold_sum)[:, None]
    w0 = softmax_let_w0(r1, C)
    for start in range(0, full_blocks, BLOCK):
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        position = column[None, :].to(tl.int64)
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :])).to(C)
        z1 = softmax_value(v0, r0, w0, C)
        wg_store(y1 + (o1[:, None] + q1[None, :]), z1, None)
    if full_blocks < n:
        start = full_blocks
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        position = column[None, :].to(tl.int64)
        inside = in_bounds[:, None] & (column < n)[None, :]
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        z1 = softmax_value(v0, r0, w0, C)
        wg_store(y1 + (o1[:, None] + q1[None, :]), z1, inside)
