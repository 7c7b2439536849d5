"""Test cases of ops that are not elementwise: row ops, contractions, convolutions, index ops, views, random numbers.

A row of the table is an op, its operands, and its numbers and static arguments by name. Every row is a case in float32,
and an op's first row is also a case in every other dtype. Values of index ops, views and convolutions are multiples of
1/8. So their sums are exact in every dtype and order, and results must equal the expected ones exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from op_convolution import convolution_rows
from op_index import INDEX_DTYPES, index_rows
from op_losses import loss_rows
from op_operands import OperandSpec, Row, arg, idx, ordered
from op_resample import SAMPLED, resample_rows
from op_running import (
    Array,
    Case,
    GradientCase,
    caller,
    differentiable,
    has,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
    with_layout,
)
from op_shapes import EVERY_DTYPE, INEXACT, shape_rows

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

ROWS = [
    Row("softmax", (arg(5, 17),), {"dim": -1}),
    Row("softmax", (arg(3, 4, 33),), {"dim": 1}),
    Row("softmax", (arg(2, 1000),), {"dim": 1}),
    Row("softmax", (arg(7),), {"dim": 0}),
    Row("log_softmax", (arg(5, 65),), {"dim": -1}),
    Row("log_softmax", (arg(6, 5),), {"dim": 0}),
    Row("logsumexp_row", (arg(5, 17),), {"dim": 1, "keepdim": False}),
    Row("logsumexp_row", (arg(4, 3, 5),), {"dim": 0, "keepdim": True}),
    Row("layer_norm", (arg(5, 17), arg(17), arg(17)), {"normalized_shape": (17,), "eps": 1e-5}),
    Row("layer_norm", (arg(5, 64), None, None), {"normalized_shape": (64,), "eps": 1e-3}),
    Row("layer_norm", (arg(2, 3, 4), arg(3, 4), None), {"normalized_shape": (3, 4), "eps": 1e-5}),
    Row("rms_norm", (arg(5, 33), arg(33)), {"normalized_shape": (33,), "eps": 1e-6}),
    Row("rms_norm", (arg(3, 16), None), {"normalized_shape": (16,), "eps": 1e-6}),
    Row("normalize_l2", (arg(5, 17),), {"dim": 1, "eps": 1e-12}),
    Row("normalize_l2", (arg(5, 4, 3),), {"dim": 1, "eps": 1e-12}),
    Row("cross_entropy_row", (arg(6, 9), idx(9, 6)), {"dim": -1, "ignore_index": 3, "label_smoothing": 0.0}),
    Row("cross_entropy_row", (arg(4, 9, 5), idx(9, 4, 5)), {"dim": 1, "ignore_index": -100, "label_smoothing": 0.25}),
]  # fmt: skip

CONTRACTIONS = [
    Row("matmul_batched", (arg(5, 17), arg(17, 9)), {}),
    Row("matmul_batched", (arg(2, 1, 7, 5), arg(3, 5, 33)), {}),
    Row("matmul_batched", (arg(70, 65), arg(65, 66)), {}),
    Row("mm", (arg(16, 16), arg(16, 16)), {}),
    Row("mm", (arg(1, 65), arg(65, 1)), {}),
    Row("mm", (arg(3, 0), arg(0, 4)), {}),
    Row("bmm", (arg(3, 4, 5), arg(3, 5, 6)), {}),
    Row("mv", (arg(33, 17), arg(17)), {}),
    Row("vm", (arg(17), arg(3, 17, 5)), {}),
    Row("bmv", (arg(2, 33, 17), arg(17)), {}),
    Row("bmv", (arg(3, 5, 7), arg(7)), {}),
    Row("dot", (arg(1000), arg(1000)), {}),
    Row("dot", (arg(65), arg(65)), {}),
    Row("outer", (arg(17), arg(33)), {}),
    Row("linear_product", (arg(4, 65), arg(33, 65)), {}),
    Row("linear_product", (arg(2, 3, 16), arg(5, 16)), {}),
    Row("linear_bias", (arg(4, 65), arg(33, 65), arg(33)), {}),
    Row("linear_bias", (arg(2, 3, 16), arg(5, 16), arg(5)), {}),
    Row("addmm_product", (arg(4, 1), arg(4, 65), arg(65, 33)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_product", (arg(6), arg(4, 5), arg(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("baddbmm_product", (arg(4, 6), arg(3, 4, 5), arg(3, 5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmv_product", (arg(33), arg(33, 17), arg(17)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmv_product", (arg(4), arg(4, 5), arg(5)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_relu", (arg(6), arg(4, 5), arg(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_gelu", (arg(6), arg(4, 5), arg(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_relu", (arg(33), arg(4, 65), arg(65, 33)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_gelu", (arg(33), arg(4, 65), arg(65, 33)), {"beta": 0.5, "alpha": -2.0}),
]  # fmt: skip


# The row `skipped` of an embedding gets no gradient (PyTorch's `padding_idx`), although finite differences see one. So
# a case that reads this row does not check gradients, and another test does.
# Kernels read 0 for an index out of range, and write nothing. Some cases have such indices.
INDEX = [
    Row("gather", (arg(5, 17), idx(17, 5, 9)), {"dim": 1}),
    Row("gather", (arg(7), idx(7, 11)), {"dim": 0}),
    Row("gather", (arg(5, 17), idx(6, 3, 17, low=-1, dtype="int32")), {"dim": -2}),
    Row("gather", (arg(5, 17, layout="transposed"), idx(17, 4, 9, layout="transposed")), {"dim": 1}),
    Row("gather", (arg(3, 5, 18, layout="permuted"), idx(5, 2, 7, 18)), {"dim": 1}),
    Row("gather", (arg(5, 17, layout="expanded"), idx(17, 5, 17, layout="sliced", dtype="uint8")), {"dim": 1}),
    Row("gather", (arg(70, layout="flipped"), idx(70, 65, layout="stepped")), {"dim": 0}),
    Row("gather", (arg(5, 17), idx(17, 5, 0)), {"dim": 1}, False),
    Row("gather", (arg(), idx(1)), {"dim": 0}),
    Row("take_at", (arg(7, 5), idx(7, 4)), {"dim": 0, "count": 1}),
    Row("take_at", (arg(3, 4, 5), idx(12, 2, 3)), {"dim": 0, "count": 2}),
    Row("take_at", (arg(3, 4, 5), idx(5, 2, 3, low=-1, dtype="int32")), {"dim": 1, "count": 1}),
    Row("take_at", (arg(3, 4, 33), idx(3)), {"dim": 0, "count": 1}),
    Row("take_at", (arg(9, 33, layout="transposed"), idx(9, 5, layout="stepped")), {"dim": 0, "count": 1}),
    Row("take_at", (arg(3, 5, 18, layout="permuted"), idx(90, 11)), {"dim": 1, "count": 2}),
    Row("take_at", (arg(5, 17, layout="expanded"), idx(5, 3, 2, layout="transposed")), {"dim": 0, "count": 1}),
    Row("take_at", (arg(4, 6), idx(6, 0, 2)), {"dim": 1, "count": 1}, False),
    Row("take_at", (arg(0, 6), idx(6, 3)), {"dim": 1, "count": 1}, False),
    Row("embedding_rows", (arg(9, 5), idx(9, 4)), {"dim": 0, "count": 1, "skipped": -1}),
    Row("embedding_rows", (arg(9, 33), idx(9, 2, 3)), {"dim": 0, "count": 1, "skipped": 100}),
    Row("embedding_rows", (arg(9, 16, layout="sliced"), idx(9, 7, dtype="int32")),
        {"dim": 0, "count": 1, "skipped": -1}),
    Row("embedding_rows", (arg(9, 5), idx(9, 20)), {"dim": 0, "count": 1, "skipped": 2}, False),
    Row("embedding_rows", (arg(9, 5), idx(9, 0)), {"dim": 0, "count": 1, "skipped": -1}, False),
    Row("spread", (arg(5, 9), idx(17, 5, 9)), {"shape": (5, 17), "dim": 1}),
    Row("spread", (arg(40), idx(7, 40)), {"shape": (7,), "dim": 0}),
    Row("spread", (arg(3, 17), idx(6, 3, 17, low=-1, dtype="int32")), {"shape": (5, 17), "dim": -2}),
    Row("spread", (arg(9, 5, layout="transposed"), idx(4, 9, 5, layout="sliced")), {"shape": (9, 4), "dim": 1}),
    Row("spread", (arg(5, 17, layout="expanded"), idx(3, 5, 17)), {"shape": (3, 20), "dim": 0}),
    Row("spread", (arg(4, 0), idx(7, 4, 0)), {"shape": (4, 7), "dim": 1}, False),
    Row("spread", (arg(), idx(1)), {"shape": (), "dim": 0}),
    Row("spread_at", (arg(4, 5), idx(7, 4)), {"shape": (7, 5), "dim": 0, "count": 1}),
    Row("spread_at", (arg(2, 3, 5), idx(12, 2, 3)), {"shape": (3, 4, 5), "dim": 0, "count": 2}),
    Row("spread_at", (arg(3, 8, 6), idx(5, 8, low=-1, dtype="int32")), {"shape": (3, 4, 6), "dim": 1, "count": 1}),
    Row("spread_at", (arg(40, 33, layout="transposed"), idx(3, 40)), {"shape": (3, 33), "dim": 0, "count": 1}, False),
    Row("spread_at", (arg(4, 33), idx(3)), {"shape": (4, 3, 33), "dim": 1, "count": 1}),
    Row("spread_at", (arg(0, 6), idx(6, 0)), {"shape": (6, 6), "dim": 0, "count": 1}, False),
    Row("scatter", (arg(5, 17), idx(17, 5, 9), arg(5, 9)), {"dim": 1}),
    Row("scatter", (arg(7), idx(7, 40), arg(40)), {"dim": 0}),
    Row("scatter", (arg(5, 17), idx(6, 3, 17, low=-1, dtype="int32"), arg(3, 17)), {"dim": -2}),
    Row("scatter", (arg(9, 4, layout="transposed"), idx(4, 9, 5, layout="sliced"), arg(9, 5)), {"dim": 1}),
    Row("scatter", (arg(9, 4), idx(4, 9, 5), arg(9, 5, layout="stepped")), {"dim": 1}),
    Row("scatter", (arg(5, 17, layout="expanded"), idx(5, 3, 17), arg(3, 17, layout="expanded")), {"dim": 0}),
    Row("scatter", (arg(4, 7), idx(7, 4, 0), arg(4, 0)), {"dim": 1}, False),
    Row("scatter", (arg(), idx(1), arg()), {"dim": 0}),
    Row("put_at", (arg(7, 5), idx(7, 4), arg(4, 5)), {"dim": 0, "count": 1}),
    Row("put_at", (arg(3, 4, 5), idx(12, 2, 9), arg(2, 9, 5)), {"dim": 0, "count": 2}),
    Row("put_at", (arg(3, 4, 6), idx(5, 8, low=-1, dtype="int32"), arg(3, 8, 6)), {"dim": 1, "count": 1}),
    Row("put_at", (arg(9, 33, layout="transposed"), idx(9, 20, layout="stepped"), arg(20, 33)), {"dim": 0, "count": 1}),
    Row("put_at", (arg(4, 3, 33), idx(3), arg(4, 33, layout="sliced")), {"dim": 1, "count": 1}),
    Row("put_at", (arg(5, 6), idx(5, 0), arg(0, 6)), {"dim": 0, "count": 1}, False),
    # The result has the number of true elements before each chunk. These masks are a single chunk.
    Row("mask_counts", (arg(65, holds="mask"),), {}),
    Row("mask_counts", (arg(5, 17, holds="mask"),), {}),
    Row("mask_counts", (arg(holds="mask"),), {}),
    Row("mask_positions", (arg(65, holds="mask"), None), {}),
    Row("mask_positions", (arg(5, 17, holds="mask"), None), {}),
    Row("mask_positions", (arg(holds="mask"), None), {}),
]  # fmt: skip
INDEX += [row._replace(op="put_add_at") for row in INDEX if row.op == "put_at"]
INDEX += [row._replace(op="scatter_add") for row in INDEX if row.op == "scatter"]
INDEX += index_rows(Row, arg, idx, ordered)

VIEWS = [
    Row("view", (arg(6, 10),), {"shape": (3, -1, 5)}),
    Row("view", (arg(4, 6, layout="transposed"),), {"shape": (4, 3, 2)}),
    Row("view", (arg(3, 5, 18, layout="permuted"),), {"shape": (3, 5, 3, 6)}, False),
    Row("view", (arg(),), {"shape": (1, 1)}),
    Row("view", (arg(1, 1),), {"shape": ()}),
    Row("view", (arg(3, 0),), {"shape": (0, 7)}, False),
    Row("permute", (arg(2, 3, 5),), {"dims": (2, 0, 1)}),
    Row("permute", (arg(3, 5, 18, layout="permuted"),), {"dims": (-1, 0, -2)}, False),
    Row("permute", (arg(),), {"dims": ()}),
    Row("permute", (arg(2, 0, 3),), {"dims": (1, 2, 0)}, False),
    Row("transpose", (arg(5, 7),), {"dim0": 0, "dim1": 1}),
    Row("transpose", (arg(2, 3, 5, layout="sliced"),), {"dim0": -1, "dim1": 0}),
    Row("transpose", (arg(),), {"dim0": 0, "dim1": -1}),
    Row("expand", (arg(5, 1),), {"shape": (3, 5, 4)}),
    Row("expand", (arg(3, 1, 4, layout="sliced"),), {"shape": (-1, 2, -1)}),
    Row("expand", (arg(),), {"shape": (2, 3)}),
    Row("expand", (arg(1, 5),), {"shape": (0, 5)}, False),
    Row("squeeze", (arg(1, 5, 1, 3),), {"dim": None}),
    Row("squeeze", (arg(1, 5, 1, 3),), {"dim": -2}),
    Row("squeeze", (arg(1, 5, 1, 3),), {"dim": 1}),
    Row("squeeze", (arg(1, 5, 1, 3),), {"dim": (0, 1, 2)}),
    Row("squeeze", (arg(),), {"dim": None}),
    Row("unsqueeze", (arg(5, 3),), {"dim": 1}),
    Row("unsqueeze", (arg(5, 3, layout="transposed"),), {"dim": -1}),
    Row("unsqueeze", (arg(),), {"dim": 0}),
    Row("unsqueeze", (arg(0, 3),), {"dim": 2}, False),
    Row("select", (arg(5, 7),), {"dim": 1, "index": 3}),
    Row("select", (arg(5, 7, layout="flipped"),), {"dim": -2, "index": -1}),
    Row("select", (arg(9,),), {"dim": 0, "index": 0}),
    Row("select", (arg(3, 5, 18, layout="permuted"),), {"dim": 1, "index": -5}, False),
    Row("slice", (arg(5, 17),), {"dim": 1, "start": 2, "end": -1, "step": 3}),
    Row("slice", (arg(5, 17, layout="stepped"),), {"dim": 0, "start": None, "end": None, "step": 2}),
    Row("slice", (arg(5, 17),), {"dim": -1, "start": -40, "end": 40, "step": 1}),
    Row("slice", (arg(5, 17),), {"dim": 1, "start": 9, "end": 3, "step": 1}, False),
    Row("narrow", (arg(5, 17),), {"dim": 1, "start": 4, "length": 9}),
    Row("narrow", (arg(5, 17, layout="transposed"),), {"dim": 0, "start": -3, "length": 2}),
    Row("narrow", (arg(5, 17),), {"dim": 0, "start": 5, "length": 0}, False),
    Row("as_strided", (arg(6, 4),), {"size": (3, 2), "stride": (8, 1), "offset": 2}),
    Row("as_strided", (arg(24),), {"size": (2, 5, 3), "stride": (12, 0, 2), "offset": 1}),
    Row("as_strided", (arg(24),), {"size": (), "stride": (), "offset": 7}),
    Row("as_strided", (arg(24),), {"size": (5, 3), "stride": (2, 1), "offset": 0}, False),  # overlaps
    Row("as_strided", (arg(6, 4, layout="transposed"),), {"size": (4, 6), "stride": (6, 1), "offset": 0}, False),
    Row("flip_view", (arg(5, 7),), {"dims": (0, 1)}),
    Row("flip_view", (arg(2, 3, 5, layout="sliced"),), {"dims": (-2,)}),
    Row("flip_view", (arg(5, 7, layout="flipped"),), {"dims": (1,)}),
    Row("flip_view", (arg(),), {"dims": ()}),
    Row("flip_view", (arg(0, 3),), {"dims": (0, 1)}, False),
    Row("diagonal", (arg(5, 7),), {"offset": 0, "dim1": 0, "dim2": 1}),
    Row("diagonal", (arg(5, 7, layout="transposed"),), {"offset": 2, "dim1": 1, "dim2": 0}),
    Row("diagonal", (arg(3, 4, 5),), {"offset": -1, "dim1": -1, "dim2": 0}),
    Row("diagonal", (arg(3, 4),), {"offset": 9, "dim1": 0, "dim2": 1}, False),
    Row("unfold", (arg(11),), {"dimension": 0, "size": 4, "step": 3}),
    Row("unfold", (arg(3, 8, layout="transposed"),), {"dimension": -1, "size": 3, "step": 1}),
    Row("unfold", (arg(7, 3),), {"dimension": 0, "size": 2, "step": 5}),
    Row("alias", (arg(5, 7, layout="sliced"),), {}),
    Row("alias", (arg(),), {}),
    Row("index_view", (arg(5, 7),), {"items": ((1, 4, 2), None, -1)}),
    Row("index_view", (arg(3, 5, 4, layout="transposed"),), {"items": (2, None, (None, None, 3))}),
    Row("index_view", (arg(5, 7),), {"items": ()}),
    Row("index_view", (arg(),), {"items": (None, None)}),
    Row("index_view", (arg(5, 7),), {"items": ((4, 2, None),)}, False),
]  # fmt: skip

_STREAM = {"seed": 0xDEADBEEF12345678, "offset": 5}
_LATE_STREAM = {"seed": 7, "offset": (1 << 40) + 3}  # an offset of more than 32 bits


def _random(op: str, *other_operands: OperandSpec, **named: Any) -> list[Row]:
    """Return rows with sizes around the vector width, and several layouts, which must not change the draws."""
    first_operands = [
        arg(65), arg(1000), arg(5, 17), arg(5, 17, layout="transposed"), arg(3, 5, 18, layout="permuted"),
        arg(33, layout="stepped"), arg(), arg(3, 0),
    ]  # fmt: skip
    return [
        Row(op, (x, *other_operands), named | (_LATE_STREAM if x.shape == (1000,) else _STREAM), x.shape == (5, 17))
        for x in first_operands
    ]


def _progressions(op: str, **named: Any) -> list[Row]:
    """Return rows of the same shapes and layouts for an op that computes elements from their positions."""
    return [row._replace(named=named, checks_gradients=False) for row in _random(op)]


def _with_probabilities(rows: list[Row]) -> list[Row]:
    """Return the rows with probabilities as operands."""
    return [row._replace(operands=tuple(replace(x, holds="chance") for x in row.operands if x)) for row in rows]


RANDOM = [
    *_random("uniform_fill", low=-1.5, high=2.5, levels=None),
    *_random("normal_fill", mean=0.5, std=2.0),
    *_random("normal_around", arg()),
    Row("normal_around", (arg(5, 1), arg(17)), _STREAM),
    *_random("exponential_fill", rate=1.5),
    *_random("integer_fill", low=-20, span=53),
    *_random("narrow_integer_fill", low=-20, span=53),
    *_random("narrow_integer_fill", low=-(1 << 30), span=1 << 31)[:1],
    *_random("partner_fill"),
    *_random("wide_partner_fill"),
    *_with_probabilities(_random("weighted_key")),
    *_random("bernoulli_fill", p=0.3),
    *_with_probabilities(_random("bernoulli_draw")),
    *_random("dropout_draw", p=0.3, scale=1 / 0.7),
    *_progressions("arange_fill", start=3, step=1),
    *_progressions("arange_fill", start=0.3, step=-0.1),
    *_progressions("linspace_fill", start=-1.0, end=2.5, step=3.5 / 7, last=7.0),
]  # fmt: skip

GROUP_NORMS = [
    Row("normalize_groups", (arg(*shape), arg(shape[1]), arg(shape[1])), {"groups": groups, "eps": 1e-5}, False)
    for shape, groups in (
        ((3, 8, 5, 7), 2), ((2, 6, 16), 6), ((4, 4, 3, 11), 1), ((5, 12), 3), ((2, 4, 3), 2), ((1, 2, 33), 1),
        ((0, 2, 3), 1),
    )
]  # fmt: skip
SHUFFLES = [Row("shuffle_order", (arg(n, holds="partner"),), {}) for n in (1, 2, 33, 1000, 5000)]

TABLE: dict[str, list[Row]] = {}
_MORE_ROWS = [
    *convolution_rows(Row, arg), *shape_rows(Row, arg), *resample_rows(Row, arg, idx), *loss_rows(Row, arg, idx),
]  # fmt: skip
for _row in (*ROWS, *CONTRACTIONS, *INDEX, *VIEWS, *RANDOM, *GROUP_NORMS, *SHUFFLES, *_MORE_ROWS):
    TABLE.setdefault(_row.op, []).append(_row)

# Dtypes

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_ALL_DTYPES = (*_FLOATS, "int8", "int16", "int32", "int64", "uint8", "bool")
_BY_KIND = {
    "rowwise": ("float32", "float64", "bfloat16"), "contraction": ("float32", "float64", "bfloat16"), "custom": _FLOATS,
}  # fmt: skip
_BY_OP = {
    "integer_fill": ("int64", "int32", "int16", "int8", "float32"),
    "narrow_integer_fill": ("int64", "int32"),
    "partner_fill": ("int64",),
    "wide_partner_fill": ("int64",),
    "shuffle_order": ("int64", "int32"),
    "normalize_groups": ("float32", "float16", "bfloat16"),
    "class_loss_sums": ("float32", "float64"),
    "bernoulli_fill": (*_FLOATS, "int64", "uint8", "bool"),
    "arange_fill": (*_FLOATS, "int64", "int32", "int16", "int8", "uint8"),
    **INDEX_DTYPES,
}
_SIGNIFICAND_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def dtypes_of(op: Op, device: Device, selection: str) -> list[str]:
    """Return the dtypes of an op's first row. Its other rows have the first of these dtypes only."""
    restricted = _ALL_DTYPES if op.name in EVERY_DTYPE else _BY_OP.get(op.name) or _BY_KIND.get(op.kind)
    dtypes = [d for d in restricted or (_FLOATS if op.kind == "random" else _ALL_DTYPES) if has(device, d)]
    if selection == "full":
        return dtypes
    narrow = ("float16", "bool") if op.kind in ("index", "custom", "view") else ()
    return [d for d in dtypes if d == dtypes[0] or d in narrow or (selection == "small" and d in ("float64", "int32"))]


# Values


def _draw_values(op: Op, operand: OperandSpec, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = numpy_of(dtype).kind
    if operand.holds == "mask" or kind == "b":
        return rng.random(shape) > 0.5
    if operand.holds == "index":
        return rng.integers(operand.low, operand.high, shape).astype(dtype)
    if operand.holds == "ordered":
        return np.sort(rng.integers(operand.low, operand.high, shape)).astype(dtype)
    if operand.holds == "partner":
        return rng.integers(0, np.arange(1, shape[0] + 1)).astype(dtype)
    if operand.holds == "chance":
        return rounded(rng.random(shape), dtype)
    if op.kind == "view":  # distinct values, as far as the dtype allows
        values = rng.permutation(int(np.prod(shape))).reshape(shape)
    elif op.kind in ("index", "custom"):
        values = rng.integers(-16, 17, shape)
    else:
        return rounded(rng.standard_normal(shape) * (1 if kind == "f" else 3), dtype)
    return rounded(values / 8, dtype) if kind == "f" else values.astype(dtype)


def _operands(row: Row, dtype: str, device: Device, layouts: bool = True) -> tuple[list[Any], list[Any]]:
    """Return arrays and tensors of a row's operands; without `layouts`, they are contiguous."""
    op, rng = specs()[row.op], np.random.default_rng(3)
    arrays: list[Any] = []
    tensors: list[Any] = []
    for operand in row.operands:
        if operand is None:
            arrays.append(None)
            tensors.append(None)
            continue
        operand_dtype = operand.dtype or ("bool" if operand.holds == "mask" and dtype == "float32" else dtype)

        def make(shape: tuple[int, ...], operand: OperandSpec = operand, operand_dtype: str = operand_dtype) -> Array:
            return _draw_values(op, operand, shape, operand_dtype, rng)

        layout = (
            operand.layout if (layouts and operand.layout != "expanded") or operand.holds == "index" else "contiguous"
        )
        array, operand_tensor = with_layout(
            make, operand.shape, layout, lambda a, operand_dtype=operand_dtype: tensor(a, operand_dtype, device)
        )
        arrays.append(array)
        tensors.append(operand_tensor)
    return arrays, tensors


def _numbers(row: Row, dtype: str, arrays: list[Any]) -> dict[str, Any]:
    """Return the row's numbers and static arguments, including those that depend on its values.

    For `mask_positions` this also sets the second of `arrays`, the numbers of true elements before each chunk.
    """
    named = dict(row.named)
    if row.op == "mask_positions":
        total = int(np.count_nonzero(arrays[0]))
        arrays[1] = np.array([0, total])
        named["total"] = total
    if "levels" in named:
        named["levels"] = 2.0 ** _SIGNIFICAND_BITS[dtype]
    return named


def _arguments(row: Row, named: dict[str, Any], tensors: list[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """Return (operands, static arguments) of the call."""
    op, tensors_left = specs()[row.op], iter(tensors)
    operands: list[Any] = []
    for p in op.operands:
        operands += tensors_left if p.role == "list" else [next(tensors_left) if p.is_tensor else named[p.name]]
    if "items" in named:
        return operands, named["items"]
    return operands, tuple(named.get(p.name, p.default) for p in op.statics)


# Cases

_EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 4e-7, "float64": 1e-15}
_RTOL = {"float16": 2.2e-3, "bfloat16": 1.7e-2, "float32": 1e-5, "float64": 4e-13}
_ATOL = {"float16": 4e-6, "bfloat16": 4e-6, "float32": 6e-6, "float64": 4e-14}


def table_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return a case for every row of an op, and for its first row in every dtype."""
    rows, dtypes = TABLE.get(op.name, []), dtypes_of(op, device, selection)
    if selection == "small":
        rows = [row for row in rows if _element_count(row) <= 700]
    cases = [_case(op, row, dtypes[0], device) for row in rows]
    return cases + [_case(op, row, dtype, device) for row in rows[:1] for dtype in dtypes[1:]]


def _element_count(row: Row) -> int:
    return sum(int(np.prod(operand.shape)) for operand in row.operands if operand)


def _case(op: Op, row: Row, dtype: str, device: Device) -> Case:
    arrays, tensors = _operands(row, dtype, device)
    named = _numbers(row, dtype, arrays)
    if op.name == "mask_positions":
        tensors[1] = tensor(arrays[1], "int64", device)
    operands, statics = _arguments(row, named, tensors)
    reference = reference_of(op)
    assert reference is not None, f"{op.name} has no reference"
    exact = op.kind in ("index", "view", "custom") and op.name not in (*INEXACT, *SAMPLED, "normalize_groups")
    inputs = arrays if exact else [a if a is None or a.dtype.kind in "biu" else a.astype(np.float64) for a in arrays]
    if op.kind == "random":
        named["dtype"] = dtype
    with np.errstate(all="ignore"):
        expected = reference(*inputs, **named)
    layouts = [operand.layout if operand else None for operand in row.operands]
    result: Any = "int64" if op.name.startswith("mask_") or op.name in ("bag_of", "shuffle_order") else dtype
    if op.name == "normalize_groups":  # its statistics are float32
        result = (dtype, "float32", "float32")
    if op.name == "class_loss_sums":
        result = (dtype, dtype, "int64", "int64", "int64")
    case = Case(f"{dtype}, {layouts}, {row.named}", operands, arrays, expected, result, statics)
    if exact:
        case.tolerance, case.view = (0.0, 0.0), op.kind == "view"
    elif op.kind != "random":
        terms = max((a.shape[-1] for a in arrays if a is not None and a.ndim), default=1)
        case.tolerance = (_RTOL[dtype], _ATOL[dtype] + terms**0.5 * _EPSILON[dtype])
    return case


_MIN_ELEMENTS = 20  # elements of all operands together


def table_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return float64 gradient cases of the small rows with `checks_gradients`, or of the smallest row.

    A `small` selection takes one row: the smallest with all operands and at least `_MIN_ELEMENTS` elements.
    """
    rows = [row for row in TABLE.get(op.name, []) if row.checks_gradients]
    selected = [row for row in rows if _element_count(row) <= 500] or sorted(rows, key=_element_count)[:1]
    if selection == "small":
        large_enough = [row for row in selected if _element_count(row) >= _MIN_ELEMENTS] or selected
        selected = [min(large_enough, key=lambda row: (row.operands.count(None), _element_count(row)))]
    return [_gradient_case(op, row, device) for row in selected]


def _gradient_case(op: Op, row: Row, device: Device) -> GradientCase:
    arrays, tensors = _operands(row, "float64", device, layouts=op.name != "as_strided")
    names = differentiable(op)
    named = _numbers(row, "float64", arrays)
    parameters = [p.name for p in op.operands if p.is_tensor]
    for parameter, x in zip(parameters, tensors, strict=True):
        if parameter in names and x is not None:
            x.requires_grad_(True)
    operands, statics = _arguments(row, named, tensors)
    call = caller(op)
    grad_names = tuple(p for p, x in zip(parameters, tensors, strict=True) if x is not None and x.requires_grad)
    atol = 1e-5 if op.kind in ("rowwise", "contraction") else 2e-6
    return GradientCase(str(row), lambda *args: call(*args, statics=statics), operands, grad_names, atol)
