"""Test cases of the attention ops, against formulas in NumPy that store all scores, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from op_references import REFERENCES
from op_references_kinds import KIND_REFERENCES
from op_running import Array, Case, GradientCase, caller, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

_STREAM = (0xDEADBEEF12345678, 5)


@dataclass(frozen=True)
class AttentionRow:
    """A call of attention.

    Attributes:
        batch: Batch size.
        heads: Number of query heads.
        kv_heads: Number of key/value heads.
        rows: Number of query positions.
        keys: Number of key positions.
        width: Features of query and key.
        depth: Features of the value.
        mask: The mask's shape; empty: no mask.
        holds: The mask's type, `bool` or `value`.
        is_mask_transposed: Whether the mask is a transposed view.
        causal: Whether attention is causal.
        p: The dropout probability.
        layout: `contiguous`; `heads`: positions before heads in memory; `features`: gaps between features.
    """

    batch: int
    heads: int
    kv_heads: int
    rows: int
    keys: int
    width: int
    depth: int
    mask: tuple[int, ...] = ()
    holds: str = "bool"
    is_mask_transposed: bool = False
    causal: bool = False
    p: float = 0.0
    layout: str = "contiguous"


# Up to 16 positions fit one vector, more than 32 need four; 70 exceeds a block. Row 1 of bool masks is empty.
ROWS = [
    AttentionRow(1, 2, 1, 5, 7, 3, 5),
    AttentionRow(1, 2, 2, 70, 37, 20, 17, (1, 1, 70, 37), causal=True),
    AttentionRow(2, 3, 1, 9, 6, 4, 4, (2, 1, 1, 6), p=0.3, layout="features"),
    AttentionRow(2, 2, 2, 20, 18, 5, 3, (1, 2, 20, 18), "value", True, layout="heads"),
]
SMALL = [ROWS[0], ROWS[2]]
GRADIENT_ROWS = [
    AttentionRow(1, 2, 1, 3, 4, 3, 2, causal=True),
    AttentionRow(1, 2, 2, 3, 4, 2, 3, (1, 1, 3, 4), "value", p=0.4),
]


def forward(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, dropout_factors: Any
) -> tuple[Array, ...]:
    """Return the result, the log-sum-exp of each row, the probabilities and the scale."""
    group, scale = query.shape[1] // key.shape[1], query.shape[-1] ** -0.5
    scores = scale * query @ np.repeat(key, group, 1).swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        logs = (np.log(total) + np.where(np.isfinite(top), top, 0))[..., 0]
    return (dropout_factors * probabilities) @ np.repeat(value, group, 1), logs, probabilities, scale


def backward(
    query: Array, key: Array, value: Array, mask: Array | None, grad: Array, causal: bool, dropout_factors: Any
) -> tuple[Array, Array, Array]:
    """Return the gradients of query, key and value, with the Jacobian matrix of the softmax of each row."""
    group = query.shape[1] // key.shape[1]
    _, _, probabilities, scale = forward(query, key, value, mask, causal, dropout_factors)
    probability_grad = dropout_factors * (grad @ np.repeat(value, group, 1).swapaxes(-1, -2))
    score_grad = np.zeros_like(probabilities)
    for row in np.ndindex(*probabilities.shape[:3]):
        p = probabilities[row]
        score_grad[row] = (np.diag(p) - np.outer(p, p)) @ probability_grad[row] * scale

    def sum_over_group(x: Array) -> Array:
        return x.reshape(len(x), key.shape[1], group, *x.shape[2:]).sum(2)

    key_grad, value_grad = (
        score_grad.swapaxes(-1, -2) @ query,
        (dropout_factors * probabilities).swapaxes(-1, -2) @ grad,
    )
    return score_grad @ np.repeat(key, group, 1), sum_over_group(key_grad), sum_over_group(value_grad)


def delta(result: Array, grad: Array) -> Array:
    return np.asarray((result * grad).sum(-1))


REFERENCES |= {
    "attention": forward, "attention_delta": delta, "attention_query": backward, "attention_key_value": backward,
    "attention_gradients": backward,
}  # fmt: skip

# Cases

_TOLERANCE = {
    "float32": (1e-5, 4e-6), "float64": (1e-12, 1e-13), "float16": (4e-3, 4e-3), "bfloat16": (3e-2, 3e-2),
}  # fmt: skip


def _with_layout(array: Array, dtype: str, device: Device, layout: str) -> Any:
    if layout == "heads":
        return tensor(array.swapaxes(1, 2), dtype, device).transpose(1, 2)
    if layout == "features":
        strided = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        strided[..., ::2] = array
        return tensor(strided, dtype, device)[..., ::2]
    return tensor(array, dtype, device)


def _draw_values(row: AttentionRow, dtype: str) -> tuple[list[Array], Array | None]:
    """Return query, key, value and output gradient, and the mask."""
    rng = np.random.default_rng(3)
    b, h, o, n, s, w, d = row.batch, row.heads, row.kv_heads, row.rows, row.keys, row.width, row.depth
    arrays = [rounded(rng.standard_normal(t), dtype) for t in ((b, h, n, w), (b, o, s, w), (b, o, s, d), (b, h, n, d))]
    mask: Array | None = None
    if row.mask:
        mask = rng.random(row.mask) > 0.4 if row.holds == "bool" else rounded(rng.standard_normal(row.mask), dtype)
        if row.holds == "bool" and row.mask[2] > 1:
            mask[:, :, 1] = False
    return arrays, mask


def _mask_tensor(mask: Array | None, dtype: str, device: Device, is_transposed: bool) -> Any:
    if mask is None:
        return None
    dtype = "bool" if mask.dtype == bool else dtype
    return (
        tensor(mask.swapaxes(-1, -2), dtype, device).transpose(-1, -2) if is_transposed else tensor(mask, dtype, device)
    )


def _dropout_factors(row: AttentionRow, dtype: str) -> Any:
    if not row.p:
        return 1.0
    ones, compute_dtype = (
        np.ones((row.batch, row.heads, row.rows, row.keys)),
        "float64" if dtype == "float64" else "float32",
    )
    return KIND_REFERENCES["dropout_draw"](ones, row.p, 1 / (1 - row.p), *_STREAM, dtype=compute_dtype)


def _numbers(row: AttentionRow) -> tuple[float, float, float, int, int]:
    return (row.width**-0.5, row.p, 1 / (1 - row.p), *_STREAM)


def attention_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return a float32 case of every row, and the first row in other dtypes."""
    rows = SMALL if selection == "small" else ROWS
    # On the main device, the gradient cases cover float64, and every further dtype costs compile time.
    half_dtypes = ("float16", "bfloat16") if op.name == "attention" else ("float16",)
    extra_dtypes = {"full": half_dtypes, "schedules": ("float16",), "small": ("float64",)}
    dtypes = [d for d in extra_dtypes.get(selection, ()) if has(device, d)]
    return [_case(op, r, "float32", device) for r in rows] + [_case(op, rows[0], d, device) for d in dtypes]


def _case(op: Op, row: AttentionRow, dtype: str, device: Device) -> Case:
    arrays, mask = _draw_values(row, dtype)
    query, key, value, grad = [_with_layout(a, dtype, device, row.layout) for a in arrays]
    inputs = [a.astype(np.float64) for a in arrays]
    mask64 = mask if mask is None or mask.dtype == bool else mask.astype(np.float64)
    compute_dtype, dropout_factors = "float64" if dtype == "float64" else "float32", _dropout_factors(row, dtype)
    result, logs, _, _ = forward(*inputs[:3], mask64, row.causal, dropout_factors)
    tolerance = (_TOLERANCE[dtype][0], _TOLERANCE[dtype][1] * row.rows**0.5)
    if op.name == "attention_delta":
        result_array = rounded(result, dtype)
        expected: Any = delta(result_array.astype(np.float64), inputs[3])
        operands = [_with_layout(result_array, dtype, device, row.layout), grad]
        return Case(
            f"{dtype}, {row}",
            operands,
            [result_array, arrays[3]],
            expected,
            compute_dtype,
            (),
            _TOLERANCE[compute_dtype],
        )
    operands = [query, key, value, _mask_tensor(mask, dtype, device, row.is_mask_transposed)]
    if op.name == "attention":
        expected, kinds = (result, logs), (dtype, compute_dtype)
    else:
        operands += [grad, tensor(logs, compute_dtype, device), tensor(delta(result, inputs[3]), compute_dtype, device)]
        slopes = backward(*inputs[:3], mask64, inputs[3], row.causal, dropout_factors)
        parts = {"attention_query": slice(1), "attention_key_value": slice(1, 3), "attention_gradients": slice(3)}
        expected = slopes[parts[op.name]]
        kinds = (dtype,) * len(expected)
    operands += _numbers(row)
    return Case(f"{dtype}, {row}", operands, arrays, expected, kinds, (row.causal, row.p > 0), tolerance)


def attention_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases of the result by query, key and value. Second derivatives are computed by ops."""
    if op.name != "attention":
        return []
    call = caller(op)

    def gradient_case(row: AttentionRow) -> GradientCase:
        arrays, mask = _draw_values(row, "float64")
        inputs = [tensor(a, "float64", device, True) for a in arrays[:3]]
        other_operands = (_mask_tensor(mask, "float64", device, row.is_mask_transposed), *_numbers(row))
        statics = (row.causal, row.p > 0)
        return GradientCase(
            str(row), lambda *x: call(*x, *other_operands, statics=statics)[0], inputs, ("query", "key", "value")
        )

    return [gradient_case(row) for row in (GRADIENT_ROWS[:1] if selection == "small" else GRADIENT_ROWS)]
