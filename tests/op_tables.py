"""Cases of ops that are no formula of an element: rows, contractions, convolutions, index ops, views, random numbers.

A row of a table is an op, its operands, and its numbers and static arguments by name. Every row is a case in float32;
an op's first row is one in every other dtype too. Values of index ops, views and convolutions are multiples of 1/8, so
that sums of them are exact in every dtype, in any order, and results have to be exactly what is expected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from op_convolution import convolution_rows
from op_index import INDEX_DTYPES, index_rows
from op_losses import loss_rows
from op_resample import SAMPLED, resample_rows
from op_running import (
    Array,
    Case,
    Slopes,
    caller,
    differentiable,
    has,
    laid_out,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
)
from op_shapes import EVERY_DTYPE, INEXACT, shape_rows

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device


@dataclass(frozen=True)
class Given:
    """An operand: its shape, layout, and what it holds.

    holds: `value`; `index`, integers from `low` to below `high`; `ordered`, such that do not fall; `mask`; `chance`,
    numbers from 0 to 1.
    dtype: where it is not that of the case.
    """

    shape: tuple[int, ...]
    layout: str = "contiguous"
    holds: str = "value"
    low: int = 0
    high: int = 0
    dtype: str | None = None


def of(*shape: int, layout: str = "contiguous", holds: str = "value") -> Given:
    return Given(shape, layout, holds)


def at(high: int, *shape: int, low: int = 0, layout: str = "contiguous", dtype: str = "int64") -> Given:
    return Given(shape, layout, "index", low, high, dtype)


def ordered(high: int, *shape: int, layout: str = "contiguous", dtype: str = "int64") -> Given:
    return Given(shape, layout, "ordered", 0, high, dtype)


class Row(NamedTuple):
    """A call. `slopes`: whether derivatives of it are compared with differences."""

    op: str
    given: tuple[Given | None, ...]
    named: dict[str, Any]
    slopes: bool = True


ROWS = [
    Row("softmax", (of(5, 17),), {"dim": -1}),
    Row("softmax", (of(3, 4, 33),), {"dim": 1}),
    Row("softmax", (of(2, 1000),), {"dim": 1}),
    Row("softmax", (of(7),), {"dim": 0}),
    Row("log_softmax", (of(5, 65),), {"dim": -1}),
    Row("log_softmax", (of(6, 5),), {"dim": 0}),
    Row("logsumexp_row", (of(5, 17),), {"dim": 1, "keepdim": False}),
    Row("logsumexp_row", (of(4, 3, 5),), {"dim": 0, "keepdim": True}),
    Row("layer_norm", (of(5, 17), of(17), of(17)), {"normalized_shape": (17,), "eps": 1e-5}),
    Row("layer_norm", (of(5, 64), None, None), {"normalized_shape": (64,), "eps": 1e-3}),
    Row("layer_norm", (of(2, 3, 4), of(3, 4), None), {"normalized_shape": (3, 4), "eps": 1e-5}),
    Row("rms_norm", (of(5, 33), of(33)), {"normalized_shape": (33,), "eps": 1e-6}),
    Row("rms_norm", (of(3, 16), None), {"normalized_shape": (16,), "eps": 1e-6}),
    Row("normalize_l2", (of(5, 17),), {"dim": 1, "eps": 1e-12}),
    Row("normalize_l2", (of(5, 4, 3),), {"dim": 1, "eps": 1e-12}),
    Row("cross_entropy_row", (of(6, 9), at(9, 6)), {"dim": -1, "ignore_index": 3, "label_smoothing": 0.0}),
    Row("cross_entropy_row", (of(4, 9, 5), at(9, 4, 5)), {"dim": 1, "ignore_index": -100, "label_smoothing": 0.25}),
]  # fmt: skip

CONTRACTIONS = [
    Row("matmul_batched", (of(5, 17), of(17, 9)), {}),
    Row("matmul_batched", (of(2, 1, 7, 5), of(3, 5, 33)), {}),
    Row("matmul_batched", (of(70, 65), of(65, 66)), {}),
    Row("mm", (of(16, 16), of(16, 16)), {}),
    Row("mm", (of(1, 65), of(65, 1)), {}),
    Row("mm", (of(3, 0), of(0, 4)), {}),
    Row("bmm", (of(3, 4, 5), of(3, 5, 6)), {}),
    Row("mv", (of(33, 17), of(17)), {}),
    Row("vm", (of(17), of(3, 17, 5)), {}),
    Row("bmv", (of(2, 33, 17), of(17)), {}),
    Row("bmv", (of(3, 5, 7), of(7)), {}),
    Row("dot", (of(1000), of(1000)), {}),
    Row("dot", (of(65), of(65)), {}),
    Row("outer", (of(17), of(33)), {}),
    Row("linear_product", (of(4, 65), of(33, 65)), {}),
    Row("linear_product", (of(2, 3, 16), of(5, 16)), {}),
    Row("linear_bias", (of(4, 65), of(33, 65), of(33)), {}),
    Row("linear_bias", (of(2, 3, 16), of(5, 16), of(5)), {}),
    Row("addmm_product", (of(4, 1), of(4, 65), of(65, 33)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_product", (of(6), of(4, 5), of(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("baddbmm_product", (of(4, 6), of(3, 4, 5), of(3, 5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmv_product", (of(33), of(33, 17), of(17)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmv_product", (of(4), of(4, 5), of(5)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_relu", (of(6), of(4, 5), of(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_gelu", (of(6), of(4, 5), of(5, 6)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_relu", (of(33), of(4, 65), of(65, 33)), {"beta": 0.5, "alpha": -2.0}),
    Row("addmm_gelu", (of(33), of(4, 65), of(65, 33)), {"beta": 0.5, "alpha": -2.0}),
]  # fmt: skip


# Rows of embeddings that are skipped have no gradient, which differences do not know: a test of its own has them.
# A row reads 0 and writes nothing where an index is out of range; some of these are.
INDEX = [
    Row("gather", (of(5, 17), at(17, 5, 9)), {"dim": 1}),
    Row("gather", (of(7), at(7, 11)), {"dim": 0}),
    Row("gather", (of(5, 17), at(6, 3, 17, low=-1, dtype="int32")), {"dim": -2}),
    Row("gather", (of(5, 17, layout="transposed"), at(17, 4, 9, layout="transposed")), {"dim": 1}),
    Row("gather", (of(3, 5, 18, layout="turned"), at(5, 2, 7, 18)), {"dim": 1}),
    Row("gather", (of(5, 17, layout="expanded"), at(17, 5, 17, layout="sliced", dtype="uint8")), {"dim": 1}),
    Row("gather", (of(70, layout="flipped"), at(70, 65, layout="stepped")), {"dim": 0}),
    Row("gather", (of(5, 17), at(17, 5, 0)), {"dim": 1}, False),
    Row("gather", (of(), at(1)), {"dim": 0}),
    Row("take_at", (of(7, 5), at(7, 4)), {"dim": 0, "count": 1}),
    Row("take_at", (of(3, 4, 5), at(12, 2, 3)), {"dim": 0, "count": 2}),
    Row("take_at", (of(3, 4, 5), at(5, 2, 3, low=-1, dtype="int32")), {"dim": 1, "count": 1}),
    Row("take_at", (of(3, 4, 33), at(3)), {"dim": 0, "count": 1}),
    Row("take_at", (of(9, 33, layout="transposed"), at(9, 5, layout="stepped")), {"dim": 0, "count": 1}),
    Row("take_at", (of(3, 5, 18, layout="turned"), at(90, 11)), {"dim": 1, "count": 2}),
    Row("take_at", (of(5, 17, layout="expanded"), at(5, 3, 2, layout="transposed")), {"dim": 0, "count": 1}),
    Row("take_at", (of(4, 6), at(6, 0, 2)), {"dim": 1, "count": 1}, False),
    Row("take_at", (of(0, 6), at(6, 3)), {"dim": 1, "count": 1}, False),
    Row("embedding_rows", (of(9, 5), at(9, 4)), {"dim": 0, "count": 1, "skipped": -1}),
    Row("embedding_rows", (of(9, 33), at(9, 2, 3)), {"dim": 0, "count": 1, "skipped": 100}),
    Row("embedding_rows", (of(9, 16, layout="sliced"), at(9, 7, dtype="int32")), {"dim": 0, "count": 1, "skipped": -1}),
    Row("embedding_rows", (of(9, 5), at(9, 20)), {"dim": 0, "count": 1, "skipped": 2}, False),
    Row("embedding_rows", (of(9, 5), at(9, 0)), {"dim": 0, "count": 1, "skipped": -1}, False),
    Row("spread", (of(5, 9), at(17, 5, 9)), {"shape": (5, 17), "dim": 1}),
    Row("spread", (of(40), at(7, 40)), {"shape": (7,), "dim": 0}),
    Row("spread", (of(3, 17), at(6, 3, 17, low=-1, dtype="int32")), {"shape": (5, 17), "dim": -2}),
    Row("spread", (of(9, 5, layout="transposed"), at(4, 9, 5, layout="sliced")), {"shape": (9, 4), "dim": 1}),
    Row("spread", (of(5, 17, layout="expanded"), at(3, 5, 17)), {"shape": (3, 20), "dim": 0}),
    Row("spread", (of(4, 0), at(7, 4, 0)), {"shape": (4, 7), "dim": 1}, False),
    Row("spread", (of(), at(1)), {"shape": (), "dim": 0}),
    Row("spread_at", (of(4, 5), at(7, 4)), {"shape": (7, 5), "dim": 0, "count": 1}),
    Row("spread_at", (of(2, 3, 5), at(12, 2, 3)), {"shape": (3, 4, 5), "dim": 0, "count": 2}),
    Row("spread_at", (of(3, 8, 6), at(5, 8, low=-1, dtype="int32")), {"shape": (3, 4, 6), "dim": 1, "count": 1}),
    Row("spread_at", (of(40, 33, layout="transposed"), at(3, 40)), {"shape": (3, 33), "dim": 0, "count": 1}, False),
    Row("spread_at", (of(4, 33), at(3)), {"shape": (4, 3, 33), "dim": 1, "count": 1},),
    Row("spread_at", (of(0, 6), at(6, 0)), {"shape": (6, 6), "dim": 0, "count": 1}, False),
    Row("scatter", (of(5, 17), at(17, 5, 9), of(5, 9)), {"dim": 1}),
    Row("scatter", (of(7), at(7, 40), of(40)), {"dim": 0}),
    Row("scatter", (of(5, 17), at(6, 3, 17, low=-1, dtype="int32"), of(3, 17)), {"dim": -2}),
    Row("scatter", (of(9, 4, layout="transposed"), at(4, 9, 5, layout="sliced"), of(9, 5)), {"dim": 1}),
    Row("scatter", (of(9, 4), at(4, 9, 5), of(9, 5, layout="stepped")), {"dim": 1}),
    Row("scatter", (of(5, 17, layout="expanded"), at(5, 3, 17), of(3, 17, layout="expanded")), {"dim": 0}),
    Row("scatter", (of(4, 7), at(7, 4, 0), of(4, 0)), {"dim": 1}, False),
    Row("scatter", (of(), at(1), of()), {"dim": 0}),
    Row("put_at", (of(7, 5), at(7, 4), of(4, 5)), {"dim": 0, "count": 1}),
    Row("put_at", (of(3, 4, 5), at(12, 2, 9), of(2, 9, 5)), {"dim": 0, "count": 2}),
    Row("put_at", (of(3, 4, 6), at(5, 8, low=-1, dtype="int32"), of(3, 8, 6)), {"dim": 1, "count": 1}),
    Row("put_at", (of(9, 33, layout="transposed"), at(9, 20, layout="stepped"), of(20, 33)), {"dim": 0, "count": 1}),
    Row("put_at", (of(4, 3, 33), at(3), of(4, 33, layout="sliced")), {"dim": 1, "count": 1}),
    Row("put_at", (of(5, 6), at(5, 0), of(0, 6)), {"dim": 0, "count": 1}, False),
    # Counts of what lies before each chunk: here of one.
    Row("mask_counts", (of(65, holds="mask"),), {}),
    Row("mask_counts", (of(5, 17, holds="mask"),), {}),
    Row("mask_counts", (of(holds="mask"),), {}),
    Row("mask_positions", (of(65, holds="mask"), None), {}),
    Row("mask_positions", (of(5, 17, holds="mask"), None), {}),
    Row("mask_positions", (of(holds="mask"), None), {}),
]  # fmt: skip
INDEX += [row._replace(op=f"{row.op[:-3]}_add_at") for row in INDEX if row.op == "put_at"]
INDEX += [row._replace(op="scatter_add") for row in INDEX if row.op == "scatter"]
INDEX += index_rows(Row, of, at, ordered)

VIEWS = [
    Row("view", (of(6, 10),), {"shape": (3, -1, 5)}),
    Row("view", (of(4, 6, layout="transposed"),), {"shape": (4, 3, 2)}),
    Row("view", (of(3, 5, 18, layout="turned"),), {"shape": (3, 5, 3, 6)}, False),
    Row("view", (of(),), {"shape": (1, 1)}),
    Row("view", (of(1, 1),), {"shape": ()}),
    Row("view", (of(3, 0),), {"shape": (0, 7)}, False),
    Row("permute", (of(2, 3, 5),), {"dims": (2, 0, 1)}),
    Row("permute", (of(3, 5, 18, layout="turned"),), {"dims": (-1, 0, -2)}, False),
    Row("permute", (of(),), {"dims": ()}),
    Row("permute", (of(2, 0, 3),), {"dims": (1, 2, 0)}, False),
    Row("transpose", (of(5, 7),), {"dim0": 0, "dim1": 1}),
    Row("transpose", (of(2, 3, 5, layout="sliced"),), {"dim0": -1, "dim1": 0}),
    Row("transpose", (of(),), {"dim0": 0, "dim1": -1}),
    Row("expand", (of(5, 1),), {"shape": (3, 5, 4)}),
    Row("expand", (of(3, 1, 4, layout="sliced"),), {"shape": (-1, 2, -1)}),
    Row("expand", (of(),), {"shape": (2, 3)}),
    Row("expand", (of(1, 5),), {"shape": (0, 5)}, False),
    Row("squeeze", (of(1, 5, 1, 3),), {"dim": None}),
    Row("squeeze", (of(1, 5, 1, 3),), {"dim": -2}),
    Row("squeeze", (of(1, 5, 1, 3),), {"dim": 1}),
    Row("squeeze", (of(1, 5, 1, 3),), {"dim": (0, 1, 2)}),
    Row("squeeze", (of(),), {"dim": None}),
    Row("unsqueeze", (of(5, 3),), {"dim": 1}),
    Row("unsqueeze", (of(5, 3, layout="transposed"),), {"dim": -1}),
    Row("unsqueeze", (of(),), {"dim": 0}),
    Row("unsqueeze", (of(0, 3),), {"dim": 2}, False),
    Row("select", (of(5, 7),), {"dim": 1, "index": 3}),
    Row("select", (of(5, 7, layout="flipped"),), {"dim": -2, "index": -1}),
    Row("select", (of(9,),), {"dim": 0, "index": 0}),
    Row("select", (of(3, 5, 18, layout="turned"),), {"dim": 1, "index": -5}, False),
    Row("slice", (of(5, 17),), {"dim": 1, "start": 2, "end": -1, "step": 3}),
    Row("slice", (of(5, 17, layout="stepped"),), {"dim": 0, "start": None, "end": None, "step": 2}),
    Row("slice", (of(5, 17),), {"dim": -1, "start": -40, "end": 40, "step": 1}),
    Row("slice", (of(5, 17),), {"dim": 1, "start": 9, "end": 3, "step": 1}, False),
    Row("narrow", (of(5, 17),), {"dim": 1, "start": 4, "length": 9}),
    Row("narrow", (of(5, 17, layout="transposed"),), {"dim": 0, "start": -3, "length": 2}),
    Row("narrow", (of(5, 17),), {"dim": 0, "start": 5, "length": 0}, False),
    Row("as_strided", (of(6, 4),), {"size": (3, 2), "stride": (8, 1), "offset": 2}),
    Row("as_strided", (of(24),), {"size": (2, 5, 3), "stride": (12, 0, 2), "offset": 1}),
    Row("as_strided", (of(24),), {"size": (), "stride": (), "offset": 7}),
    Row("as_strided", (of(24),), {"size": (5, 3), "stride": (2, 1), "offset": 0}, False),  # overlaps
    Row("as_strided", (of(6, 4, layout="transposed"),), {"size": (4, 6), "stride": (6, 1), "offset": 0}, False),
    Row("flip_view", (of(5, 7),), {"dims": (0, 1)}),
    Row("flip_view", (of(2, 3, 5, layout="sliced"),), {"dims": (-2,)}),
    Row("flip_view", (of(5, 7, layout="flipped"),), {"dims": (1,)}),
    Row("flip_view", (of(),), {"dims": ()}),
    Row("flip_view", (of(0, 3),), {"dims": (0, 1)}, False),
    Row("diagonal", (of(5, 7),), {"offset": 0, "dim1": 0, "dim2": 1}),
    Row("diagonal", (of(5, 7, layout="transposed"),), {"offset": 2, "dim1": 1, "dim2": 0}),
    Row("diagonal", (of(3, 4, 5),), {"offset": -1, "dim1": -1, "dim2": 0}),
    Row("diagonal", (of(3, 4),), {"offset": 9, "dim1": 0, "dim2": 1}, False),
    Row("unfold", (of(11),), {"dimension": 0, "size": 4, "step": 3}),
    Row("unfold", (of(3, 8, layout="transposed"),), {"dimension": -1, "size": 3, "step": 1}),
    Row("unfold", (of(7, 3),), {"dimension": 0, "size": 2, "step": 5}),
    Row("alias", (of(5, 7, layout="sliced"),), {}),
    Row("alias", (of(),), {}),
    Row("index_view", (of(5, 7),), {"items": ((1, 4, 2), None, -1)}),
    Row("index_view", (of(3, 5, 4, layout="transposed"),), {"items": (2, None, (None, None, 3))}),
    Row("index_view", (of(5, 7),), {"items": ()}),
    Row("index_view", (of(),), {"items": (None, None)}),
    Row("index_view", (of(5, 7),), {"items": ((4, 2, None),)}, False),
]  # fmt: skip

_STREAM = {"seed": 0xDEADBEEF12345678, "offset": 5}
_LATER = {"seed": 7, "offset": (1 << 40) + 3}


def _random(op: str, *others: Given, **named: Any) -> list[Row]:
    """Sizes across the width of vectors, layouts, and no elements: what is drawn is the same in every layout."""
    first = [of(65), of(1000), of(5, 17), of(5, 17, layout="transposed"), of(3, 5, 18, layout="turned")]
    first += [of(33, layout="stepped"), of(), of(3, 0)]
    rows = [Row(op, (x, *others), named | (_LATER if turn == 1 else _STREAM), 0 < turn < 4 and turn != 1)
            for turn, x in enumerate(first)]  # fmt: skip
    return rows


def _places(op: str, **named: Any) -> list[Row]:
    """The same layouts, of an op that counts positions instead of drawing."""
    return [row._replace(named=named, slopes=False) for row in _random(op)]


def _chances(rows: list[Row]) -> list[Row]:
    return [row._replace(given=tuple(replace(g, holds="chance") for g in row.given if g)) for row in rows]


RANDOM = [
    *_random("uniform_fill", low=-1.5, high=2.5, levels=None),
    *_random("normal_fill", mean=0.5, std=2.0),
    *_random("normal_around", of(), ),
    Row("normal_around", (of(5, 1), of(17)), _STREAM),
    *_random("exponential_fill", rate=1.5),
    *_random("integer_fill", low=-20, span=53),
    *_random("bernoulli_fill", p=0.3),
    *_chances(_random("bernoulli_draw")),
    *_random("dropout_draw", p=0.3, scale=1 / 0.7),
    *_places("arange_fill", start=3, step=1),
    *_places("arange_fill", start=0.3, step=-0.1),
    *_places("linspace_fill", start=-1.0, end=2.5, step=3.5 / 7, last=7.0),
]  # fmt: skip

TABLE: dict[str, list[Row]] = {}
_MORE = [*convolution_rows(Row, of), *shape_rows(Row, of), *resample_rows(Row, of, at), *loss_rows(Row, of, at)]
for _row in (*ROWS, *CONTRACTIONS, *INDEX, *VIEWS, *RANDOM, *_MORE):
    TABLE.setdefault(_row.op, []).append(_row)

# Dtypes

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_EVERY = (*_FLOATS, "int8", "int16", "int32", "int64", "uint8", "bool")
_BY_KIND = {"rowwise": _FLOATS[:2] + _FLOATS[3:], "contraction": _FLOATS[:2] + _FLOATS[3:], "custom": _FLOATS}
_BY_OP = {
    "integer_fill": ("int64", "int32", "int16", "int8", "float32"),
    "bernoulli_fill": (*_FLOATS, "int64", "uint8", "bool"),
    "arange_fill": (*_FLOATS, "int64", "int32", "int16", "int8", "uint8"),
    **INDEX_DTYPES,
}
_LEVELS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # bits of precision


def dtypes_of(op: Op, place: Device, selection: str) -> list[str]:
    """The dtypes that an op's first row comes in. The first of them is that of all rows."""
    known = _EVERY if op.name in EVERY_DTYPE else _BY_OP.get(op.name) or _BY_KIND.get(op.kind)
    every = known or (_FLOATS if op.kind == "random" else _EVERY)
    if selection == "full":
        return [d for d in every if has(place, d)]
    halves = ("float16", "bool") if op.kind in ("index", "custom", "view") else ()
    return [d for d in every if d == every[0] or d in halves or (selection == "small" and d in ("float64", "int32"))]


# Values


def _draw(op: Op, given: Given, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = numpy_of(dtype).kind
    if given.holds == "mask" or kind == "b":
        return rng.random(shape) > 0.5
    if given.holds == "index":
        return rng.integers(given.low, given.high, shape).astype(dtype)
    if given.holds == "ordered":
        return np.sort(rng.integers(given.low, given.high, shape)).astype(dtype)
    if given.holds == "chance":
        return rounded(rng.random(shape), dtype)
    if op.kind == "view":  # no two are equal, as far as the dtype has numbers
        values = rng.permutation(int(np.prod(shape))).reshape(shape)
    elif op.kind in ("index", "custom"):
        values = rng.integers(-16, 17, shape)
    else:
        return rounded(rng.standard_normal(shape) * (1 if kind == "f" else 3), dtype)
    return rounded(values / 8, dtype) if kind == "f" else values.astype(dtype)


def _operands(row: Row, dtype: str, place: Device, layouts: bool = True) -> tuple[list[Any], list[Any]]:
    """Arrays and tensors of a row; without `layouts`, memory is contiguous."""
    op, rng = specs()[row.op], np.random.default_rng(3)
    arrays: list[Any] = []
    tensors: list[Any] = []
    for given in row.given:
        if given is None:
            arrays.append(None)
            tensors.append(None)
            continue
        own = given.dtype or ("bool" if given.holds == "mask" and dtype == "float32" else dtype)

        def make(shape: tuple[int, ...], given: Given = given, own: str = own) -> Array:
            return _draw(op, given, shape, own, rng)

        layout = given.layout if (layouts and given.layout != "expanded") or given.holds == "index" else "contiguous"
        array, made = laid_out(make, given.shape, layout, lambda a, own=own: tensor(a, own, place))
        arrays.append(array)
        tensors.append(made)
    return arrays, tensors


def _numbers(row: Row, dtype: str, arrays: list[Any]) -> dict[str, Any]:
    """The row's numbers and static arguments, with those that follow from its values."""
    named = dict(row.named)
    if row.op == "mask_positions":
        total = int(np.count_nonzero(arrays[0]))
        arrays[1] = np.array([0, total])
        named["total"] = total
    if "levels" in named:
        named["levels"] = 2.0 ** _LEVELS[dtype]
    return named


def _arguments(row: Row, named: dict[str, Any], tensors: list[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """(operands, static arguments) of the call."""
    op, left = specs()[row.op], iter(tensors)
    operands: list[Any] = []
    for p in op.operands:
        operands += left if p.role == "list" else [next(left) if p.is_tensor else named[p.name]]
    if "items" in named:
        return operands, named["items"]
    return operands, tuple(named.get(p.name, p.default) for p in op.statics)


# Cases

_EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 4e-7, "float64": 1e-15}
_RTOL = {"float16": 2.2e-3, "bfloat16": 1.7e-2, "float32": 1e-5, "float64": 4e-13}
_ATOL = {"float16": 4e-6, "bfloat16": 4e-6, "float32": 6e-6, "float64": 4e-14}


def table_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Every row of an op, its first one in every dtype."""
    rows, dtypes = TABLE.get(op.name, []), dtypes_of(op, place, selection)
    if selection == "small":
        rows = [row for row in rows if _size(row) <= 700]
    found = [_case(op, row, dtypes[0], place) for row in rows]
    return found + [_case(op, row, dtype, place) for row in rows[:1] for dtype in dtypes[1:]]


def _size(row: Row) -> int:
    return sum(int(np.prod(g.shape)) for g in row.given if g)


def _case(op: Op, row: Row, dtype: str, place: Device) -> Case:
    arrays, tensors = _operands(row, dtype, place)
    named = _numbers(row, dtype, arrays)
    if op.name == "mask_positions":
        tensors[1] = tensor(arrays[1], "int64", place)
    operands, statics = _arguments(row, named, tensors)
    reference = reference_of(op)
    assert reference is not None, f"{op.name} has no reference"
    exact = op.kind in ("index", "view", "custom") and op.name not in (*INEXACT, *SAMPLED)
    wide = arrays if exact else [a if a is None or a.dtype.kind in "biu" else a.astype(np.float64) for a in arrays]
    if op.kind == "random":
        named["dtype"] = dtype
    with np.errstate(all="ignore"):
        expected = np.asarray(reference(*wide, **named))
    layouts = [g.layout if g else None for g in row.given]
    result = "int64" if op.name.startswith("mask_") or op.name == "bag_of" else dtype
    made = Case(f"{dtype}, {layouts}, {row.named}", operands, arrays, expected, result, statics)
    if exact:
        made.tolerance, made.view = (0.0, 0.0), op.kind == "view"
    elif op.kind != "random":
        terms = max((a.shape[-1] for a in arrays if a is not None and a.ndim), default=1)
        made.tolerance = (_RTOL[dtype], _ATOL[dtype] + terms**0.5 * _EPSILON[dtype])
    return made


_LEAST = 20  # elements of all operands together


def table_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """The rows that say so and are small, or the smallest, in float64; of a `small` selection the smallest of those
    with all operands that are no trifle."""
    rows = [row for row in TABLE.get(op.name, []) if row.slopes]
    some = [row for row in rows if _size(row) <= 500] or sorted(rows, key=_size)[:1]
    if selection == "small":
        enough = [row for row in some if _size(row) >= _LEAST] or some
        some = [min(enough, key=lambda row: (row.given.count(None), _size(row)))]
    return [_slopes(op, row, place) for row in some]


def _slopes(op: Op, row: Row, place: Device) -> Slopes:
    arrays, tensors = _operands(row, "float64", place, layouts=op.name != "as_strided")
    wanted = differentiable(op)
    named = _numbers(row, "float64", arrays)
    parameters = [p.name for p in op.operands if p.is_tensor]
    for parameter, x in zip(parameters, tensors, strict=True):
        if parameter in wanted and x is not None:
            x.requires_grad_(True)
    operands, statics = _arguments(row, named, tensors)
    call = caller(op)
    of = tuple(p for p, x in zip(parameters, tensors, strict=True) if x is not None and x.requires_grad)
    atol = 1e-5 if op.kind in ("rowwise", "contraction") else 2e-6
    return Slopes(str(row), lambda *given: call(*given, statics=statics), operands, of, atol)
