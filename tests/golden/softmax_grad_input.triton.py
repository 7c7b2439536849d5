# softmax_grad_input(grad, out, dim): result = out * (grad - sum(grad * out))
@triton.jit
def softmax_grad_input_sweep0(grad, out, C: tl.constexpr):
    return grad * out


@triton.jit
def softmax_grad_input_value(grad, out, r0, C: tl.constexpr):
    return out * (grad - r0)


@triton.jit
def softmax_grad_input_whole(
    x0, x1, y2, rows, n, run, size, inner,
    stride0, stride1, stride2, step0, step1, step2, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OUTER: tl.constexpr,
    INNER: tl.constexpr,
    BESIDE0: tl.constexpr, STEP0: tl.constexpr, BESIDE1: tl.constexpr, STEP1: tl.constexpr, BESIDE2: tl.constexpr, STEP2: tl.constexpr,
):
    """ROWS rows per program, each loaded once as a whole: BLOCK is at least its length."""
    column = tl.arange(0, BLOCK).to(INDEX)
    length = n.to(C)
    q0 = wg_line_start(column, inner, step0, INNER, STEP0)
    q1 = wg_line_start(column, inner, step1, INNER, STEP1)
    q2 = wg_line_start(column, inner, step2, INNER, STEP2)
    position = column[None, :].to(tl.int64)
    row = tl.program_id(0).to(INDEX) * ROWS + tl.arange(0, ROWS)
    in_bounds = row < rows
    o0 = wg_line_start(row, size, stride0, OUTER, BESIDE0)
    o1 = wg_line_start(row, size, stride1, OUTER, BESIDE1)
    o2 = wg_line_start(row, size, stride2, OUTER, BESIDE2)
    inside = in_bounds[:, None] & (column < n)[None, :]
    v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
    v1 = tl.load(x1 + (o1[:, None] + q1[None, :]), mask=inside, other=0).to(C)
    a_r0 = softmax_grad_input_sweep0(v0, v1, C)
    r0 = tl.reduce(tl.where(inside, a_r0, 0), 1, wg_fold_sum)[:, None]
    z2 = softmax_grad_input_value(v0, v1, r0, C)
    wg_store(y2 + (o2[:, None] + q2[None, :]), z2, inside)


@triton.jit
def softmax_grad_input_swept(
    x0, x1, y2, rows, n, run, size, inner,
    stride0, stride1, stride2, step0, step1, step2, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, OUTER: tl.constexpr,
    INNER: tl.constexpr,
    BESIDE0: tl.constexpr, STEP0: tl.constexpr, BESIDE1: tl.constexpr, STEP1: tl.constexpr, BESIDE2: tl.constexpr, STEP2: tl.constexpr,
):
    """Long rows: one per program, BLOCK elements at a time."""
    length = n.to(C)
    full_blocks = n // BLOCK * BLOCK
    row = tl.program_id(0).to(INDEX) + tl.arange(0, ROWS)
    in_bounds = row < rows
    o0 = wg_line_start(row, size, stride0, OUTER, BESIDE0)
    o1 = wg_line_start(row, size, stride1, OUTER, BESIDE1)
    o2 = wg_line_start(row, size, stride2, OUTER, BESIDE2)
    s_r0 = tl.full((ROWS, BLOCK), 0, C)
    for start in range(0, full_blocks, BLOCK):
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        q2 = wg_line_start(column, inner, step2, INNER, STEP2)
        position = column[None, :].to(tl.int64)
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :])).to(C)
        v1 = tl.load(x1 + (o1[:, None] + q1[None, :])).to(C)
        a_r0 = softmax_grad_input_sweep0(v0, v1, C)
        s_r0 = wg_fold_sum(s_r0, a_r0)
    if full_blocks < n:
        start = full_blocks
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        q2 = wg_line_start(column, inner, step2, INNER, STEP2)
        position = column[None, :].to(tl.int64)
        inside = in_bounds[:, None] & (column < n)[None, :]
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        v1 = tl.load(x1 + (o1[:, None] + q1[None, :]), mask=inside, other=0).to(C)
        a_r0 = softmax_grad_input_sweep0(v0, v1, C)
        s_r0 = wg_fold_sum(s_r0, tl.where(inside, a_r0, 0))
    r0 = tl.reduce(s_r0, 1, wg_fold_sum)[:, None]
    for start in range(0, full_blocks, BLOCK):
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        q2 = wg_line_start(column, inner, step2, INNER, STEP2)
        position = column[None, :].to(tl.int64)
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :])).to(C)
        v1 = tl.load(x1 + (o1[:, None] + q1[None, :])).to(C)
        z2 = softmax_grad_input_value(v0, v1, r0, C)
        wg_store(y2 + (o2[:, None] + q2[None, :]), z2, None)
    if full_blocks < n:
        start = full_blocks
        column = start + tl.arange(0, BLOCK).to(INDEX)
        q0 = wg_line_start(column, inner, step0, INNER, STEP0)
        q1 = wg_line_start(column, inner, step1, INNER, STEP1)
        q2 = wg_line_start(column, inner, step2, INNER, STEP2)
        position = column[None, :].to(tl.int64)
        inside = in_bounds[:, None] & (column < n)[None, :]
        v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        v1 = tl.load(x1 + (o1[:, None] + q1[None, :]), mask=inside, other=0).to(C)
        z2 = softmax_grad_input_value(v0, v1, r0, C)
        wg_store(y2 + (o2[:, None] + q2[None, :]), z2, inside)
