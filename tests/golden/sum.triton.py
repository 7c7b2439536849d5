# sum(input, dim, keepdim, dtype): map acc = input, combine acc = a + b, finish out = acc
@triton.jit
def sum_map(input, index, C: tl.constexpr):
    return input


@triton.jit
def sum_combine(a, b):
    return a + b


@triton.jit
def sum_result(acc, n, C: tl.constexpr):
    return acc


@triton.jit
def sum_tiles(
    x0, y0, results, count, run, kept, reduced,
    kept_strides0, kept_strides1, along0, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, RESULTS: tl.constexpr, BLOCK: tl.constexpr,
    KEPT: tl.constexpr, REDUCED: tl.constexpr, LINES: tl.constexpr,
    BESIDE0: tl.constexpr, ALONG0: tl.constexpr,
):
    """RESULTS results per program, BLOCK elements of each at a time."""
    # LINES: a block is part of one line of the last reduced dimension, so that an element's offset needs no division.
    # ALONG then says how an operand's elements lie on a line: 0 one for all, 1 contiguous, 2 any stride.
    if LINES:
        line_blocks = tl.cdiv(reduced[REDUCED - 1], BLOCK)
        limit = count // reduced[REDUCED - 1] * line_blocks
    else:
        limit = count
    out = tl.program_id(0).to(INDEX) * RESULTS + tl.arange(0, RESULTS)
    in_bounds = out < results
    o0 = wg_line_start(out, kept, kept_strides0, KEPT, BESIDE0)
    s0 = tl.full((RESULTS, BLOCK), 0, C)
    for first in range(0, limit, 1 if LINES else BLOCK):
        if LINES:
            line = first // line_blocks
            column = (first % line_blocks) * BLOCK + tl.arange(0, BLOCK)
            position = line * reduced[REDUCED - 1] + column
            inside = in_bounds[:, None] & (column < reduced[REDUCED - 1])[None, :]
        else:
            position = first + tl.arange(0, BLOCK)
            inside = in_bounds[:, None] & (position < count)[None, :]
        if LINES:
            q0 = wg_line_start(line, reduced, along0, REDUCED - 1, 0)
            if ALONG0 == 0:
                v0 = tl.load(x0 + (o0 + q0)[:, None], mask=in_bounds[:, None], other=0).to(C)
            else:
                q0 = q0 + (column if ALONG0 == 1 else column * along0[REDUCED - 1])
                v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        else:
            q0 = wg_line_start(position, reduced, along0, REDUCED, ALONG0)
            v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        m0 = sum_map(v0, position[None, :].to(tl.int64), C)
        m0 = tl.where(inside, m0, tl.full((RESULTS, BLOCK), 0, C))
        s0 = sum_combine(s0, m0)
    s0 = tl.reduce(s0, 1, sum_combine)
    r0 = sum_result(s0, count.to(C), C)
    o1 = wg_line_start(out, kept, kept_strides1, KEPT, 0)
    wg_store(y0 + o1, r0, in_bounds)


@triton.jit
def sum_partial(
    x0, p0, results, count, run, kept, reduced,
    kept_strides0, along0, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, RESULTS: tl.constexpr, BLOCK: tl.constexpr,
    KEPT: tl.constexpr, REDUCED: tl.constexpr, LINES: tl.constexpr,
    BESIDE0: tl.constexpr, ALONG0: tl.constexpr,
):
    """Partial states: RESULTS results per program, over the share of the reduced elements of program id 1."""
    # LINES: a block is part of one line of the last reduced dimension, so that an element's offset needs no division.
    # ALONG then says how an operand's elements lie on a line: 0 one for all, 1 contiguous, 2 any stride.
    if LINES:
        line_blocks = tl.cdiv(reduced[REDUCED - 1], BLOCK)
        limit = count // reduced[REDUCED - 1] * line_blocks
    else:
        limit = count
    out = tl.program_id(0).to(INDEX) * RESULTS + tl.arange(0, RESULTS)
    in_bounds = out < results
    begin = tl.program_id(1).to(INDEX) * run
    end = tl.minimum(begin + run, limit)
    o0 = wg_line_start(out, kept, kept_strides0, KEPT, BESIDE0)
    s0 = tl.full((RESULTS, BLOCK), 0, C)
    for first in range(begin, end, 1 if LINES else BLOCK):
        if LINES:
            line = first // line_blocks
            column = (first % line_blocks) * BLOCK + tl.arange(0, BLOCK)
            position = line * reduced[REDUCED - 1] + column
            inside = in_bounds[:, None] & (column < reduced[REDUCED - 1])[None, :]
        else:
            position = first + tl.arange(0, BLOCK)
            inside = in_bounds[:, None] & (position < end)[None, :]
        if LINES:
            q0 = wg_line_start(line, reduced, along0, REDUCED - 1, 0)
            if ALONG0 == 0:
                v0 = tl.load(x0 + (o0 + q0)[:, None], mask=in_bounds[:, None], other=0).to(C)
            else:
                q0 = q0 + (column if ALONG0 == 1 else column * along0[REDUCED - 1])
                v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        else:
            q0 = wg_line_start(position, reduced, along0, REDUCED, ALONG0)
            v0 = tl.load(x0 + (o0[:, None] + q0[None, :]), mask=inside, other=0).to(C)
        m0 = sum_map(v0, position[None, :].to(tl.int64), C)
        m0 = tl.where(inside, m0, tl.full((RESULTS, BLOCK), 0, C))
        s0 = sum_combine(s0, m0)
    s0 = tl.reduce(s0, 1, sum_combine)
    wg_store(p0 + (tl.program_id(1).to(INDEX) * results + out), s0, in_bounds)


@triton.jit
def sum_finish(
    p0, y0, results, count, splits, kept,
    kept_strides0, numbers,
    C: tl.constexpr, INDEX: tl.constexpr, RESULTS: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr,
):
    """Results from partial states, which are stored split by split."""
    out = tl.program_id(0).to(INDEX) * RESULTS + tl.arange(0, RESULTS)
    in_bounds = out < results
    s0 = tl.full((RESULTS, BLOCK), 0, C)
    for first in range(0, splits, BLOCK):
        position = first + tl.arange(0, BLOCK)
        inside = in_bounds[:, None] & (position < splits)[None, :]
        q = position[None, :] * results + out[:, None]
        m0 = tl.load(p0 + q, mask=inside, other=0).to(C)
        m0 = tl.where(inside, m0, tl.full((RESULTS, BLOCK), 0, C))
        s0 = sum_combine(s0, m0)
    s0 = tl.reduce(s0, 1, sum_combine)
    r0 = sum_result(s0, count.to(C), C)
    o0 = wg_line_start(out, kept, kept_strides0, KEPT, 0)
    wg_store(y0 + o0, r0, in_bounds)
