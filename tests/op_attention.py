"""Cases of attention's ops, against formulas in NumPy with all scores in memory, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from op_references import REFERENCES
from op_references_kinds import KIND_REFERENCES
from op_running import Array, Case, Slopes, caller, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

_STREAM = (0xDEADBEEF12345678, 5)


@dataclass(frozen=True)
class Given:
    """A call: sizes; the mask's shape, "bool" or "value", and whether it lies transposed; whether memory has heads
    behind positions, and strides between features."""

    batch: int
    heads: int
    own: int
    rows: int
    keys: int
    width: int
    depth: int
    mask: tuple[int, ...] = ()
    holds: str = "bool"
    turned: bool = False
    causal: bool = False
    p: float = 0.0
    layout: str = "contiguous"


# Up to 16 positions lie in one vector, more than 32 in four; 70 is more than a block. Row 1 of bool masks is empty.
ROWS = [
    Given(1, 2, 1, 5, 7, 3, 5),
    Given(1, 2, 2, 70, 37, 20, 17, (1, 1, 70, 37), causal=True),
    Given(2, 3, 1, 9, 6, 4, 4, (2, 1, 1, 6), p=0.3, layout="features"),
    Given(2, 2, 2, 20, 18, 5, 3, (1, 2, 20, 18), "value", True, layout="heads"),
]
SMALL = [ROWS[0], ROWS[2]]
SLOPES = [
    Given(1, 2, 1, 3, 4, 3, 2, causal=True),
    Given(1, 2, 2, 3, 4, 2, 3, (1, 1, 3, 4), "value", p=0.4),
]


def forward(query: Array, key: Array, value: Array, mask: Array | None, causal: bool, kept: Any) -> tuple[Array, ...]:
    """Result, logarithms of the rows' sums, probabilities and scale."""
    group, scale = query.shape[1] // key.shape[1], query.shape[-1] ** -0.5
    scores = scale * query @ np.repeat(key, group, 1).swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    power = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = power.sum(-1, keepdims=True)
    chances = power / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        logs = (np.log(total) + np.where(np.isfinite(top), top, 0))[..., 0]
    return (kept * chances) @ np.repeat(value, group, 1), logs, chances, scale


def backward(
    query: Array, key: Array, value: Array, mask: Array | None, grad: Array, causal: bool, kept: Any
) -> tuple[Array, Array, Array]:
    """The gradients of query, key and value, by the derivative of the softmax as a matrix of each row."""
    group = query.shape[1] // key.shape[1]
    _, _, chances, scale = forward(query, key, value, mask, causal, kept)
    change = kept * (grad @ np.repeat(value, group, 1).swapaxes(-1, -2))
    slope = np.zeros_like(chances)
    for at in np.ndindex(*chances.shape[:3]):
        p = chances[at]
        slope[at] = (np.diag(p) - np.outer(p, p)) @ change[at] * scale

    def shared(x: Array) -> Array:
        return x.reshape(len(x), key.shape[1], group, *x.shape[2:]).sum(2)

    to_key, to_value = slope.swapaxes(-1, -2) @ query, (kept * chances).swapaxes(-1, -2) @ grad
    return slope @ np.repeat(key, group, 1), shared(to_key), shared(to_value)


def delta(result: Array, grad: Array) -> Array:
    return np.asarray((result * grad).sum(-1))


REFERENCES |= {
    "attention": forward, "attention_delta": delta, "attention_query": backward, "attention_key_value": backward,
}  # fmt: skip

# Cases

_TOLERANCE = {
    "float32": (1e-5, 4e-6), "float64": (1e-12, 1e-13), "float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2),
}  # fmt: skip


def _laid_out(array: Array, dtype: str, place: Device, layout: str) -> Any:
    if layout == "heads":
        return tensor(array.swapaxes(1, 2), dtype, place).transpose(1, 2)
    if layout == "features":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return tensor(wide, dtype, place)[..., ::2]
    return tensor(array, dtype, place)


def _drawn(row: Given, dtype: str) -> tuple[list[Array], Array | None]:
    """Query, key, value and gradient, and the mask."""
    rng = np.random.default_rng(3)
    b, h, o, n, s, w, d = row.batch, row.heads, row.own, row.rows, row.keys, row.width, row.depth
    arrays = [rounded(rng.standard_normal(t), dtype) for t in ((b, h, n, w), (b, o, s, w), (b, o, s, d), (b, h, n, d))]
    mask: Array | None = None
    if row.mask:
        mask = rng.random(row.mask) > 0.4 if row.holds == "bool" else rounded(rng.standard_normal(row.mask), dtype)
        if row.holds == "bool" and row.mask[2] > 1:
            mask[:, :, 1] = False
    return arrays, mask


def _masked(mask: Array | None, dtype: str, place: Device, turned: bool) -> Any:
    if mask is None:
        return None
    dtype = "bool" if mask.dtype == bool else dtype
    return tensor(mask.swapaxes(-1, -2), dtype, place).transpose(-1, -2) if turned else tensor(mask, dtype, place)


def _kept(row: Given, dtype: str) -> Any:
    if not row.p:
        return 1.0
    ones, computed = np.ones((row.batch, row.heads, row.rows, row.keys)), "float64" if dtype == "float64" else "float32"
    return KIND_REFERENCES["dropout_draw"](ones, row.p, 1 / (1 - row.p), *_STREAM, dtype=computed)


def _numbers(row: Given) -> tuple[float, float, float, int, int]:
    return (row.width**-0.5, row.p, 1 / (1 - row.p), *_STREAM)


def attention_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Every row in float32, the first in the other dtypes too."""
    rows = SMALL if selection == "small" else ROWS
    # On the main device, float64 is what derivatives are checked in; there every dtype is a kernel to be built.
    wide = ("float16", "bfloat16") if op.name == "attention" else ("float16",)
    more = {"full": wide, "schedules": ("float16",), "small": ("float64",)}
    dtypes = [d for d in more.get(selection, ()) if has(place, d)]
    return [_case(op, r, "float32", place) for r in rows] + [_case(op, rows[0], d, place) for d in dtypes]


def _case(op: Op, row: Given, dtype: str, place: Device) -> Case:
    arrays, mask = _drawn(row, dtype)
    query, key, value, grad = [_laid_out(a, dtype, place, row.layout) for a in arrays]
    wide = [a.astype(np.float64) for a in arrays]
    wide_mask = mask if mask is None or mask.dtype == bool else mask.astype(np.float64)
    computed, kept = "float64" if dtype == "float64" else "float32", _kept(row, dtype)
    result, logs, _, _ = forward(*wide[:3], wide_mask, row.causal, kept)
    tolerance = (_TOLERANCE[dtype][0], _TOLERANCE[dtype][1] * row.rows**0.5)
    if op.name == "attention_delta":
        given = rounded(result, dtype)
        expected: Any = delta(given.astype(np.float64), wide[3])
        operands = [_laid_out(given, dtype, place, row.layout), grad]
        return Case(f"{dtype}, {row}", operands, [given, arrays[3]], expected, computed, (), _TOLERANCE[computed])
    operands = [query, key, value, _masked(mask, dtype, place, row.turned)]
    if op.name == "attention":
        expected, kinds = (result, logs), (dtype, computed)
    else:
        operands += [grad, tensor(logs, computed, place), tensor(delta(result, wide[3]), computed, place)]
        slopes = backward(*wide[:3], wide_mask, wide[3], row.causal, kept)
        expected, kinds = (slopes[:1], (dtype,)) if op.name == "attention_query" else (slopes[1:], (dtype, dtype))
    operands += _numbers(row)
    return Case(f"{dtype}, {row}", operands, arrays, expected, kinds, (row.causal, row.p > 0), tolerance)


def attention_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """Derivatives of the result by query, key and value; second ones go through ops."""
    if op.name != "attention":
        return []
    call = caller(op)

    def slopes(row: Given) -> Slopes:
        arrays, mask = _drawn(row, "float64")
        inputs = [tensor(a, "float64", place, True) for a in arrays[:3]]
        rest = (_masked(mask, "float64", place, row.turned), *_numbers(row))
        statics = (row.causal, row.p > 0)
        return Slopes(str(row), lambda *x: call(*x, *rest, statics=statics)[0], inputs, ("query", "key", "value"))

    return [slopes(row) for row in (SLOPES[:1] if selection == "small" else SLOPES)]
