"""Scaled dot-product attention: checks, broadcasting and the choice between fused kernel and composed ops.

The kernels are planned in `runtime/kinds/attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import random as _random
from .._generated import ops as _ops
from ..runtime import dtypes, layout, views
from ..runtime.autocast import autocast_operands
from ..runtime.autograd.attention_rules import attention_by_ops
from ..runtime.device import Meta
from ..runtime.dispatch import call_multiple, is_recorded
from ..runtime.errors import DomainError, DTypeError, IndexOutOfRange, ShapeError
from ..runtime.kinds.attention import is_supported
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["scaled_dot_product_attention"]

_OP_NAME = "scaled_dot_product_attention"
_attention = registry["attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute softmax(scale * query key^T + attn_mask) value over the last two dimensions (Vaswani et al. 2017).

    The forward and backward kernels do not store the scores, so memory is linear in L and S (Dao 2023,
    FlashAttention-2, arXiv 2307.08691). The scores are stored for a second derivative, for the gradient of a mask, and
    for more features than the kernels support. A row that attends to nothing is 0. Half types are computed in float32.

    Args:
        query: `(..., L, E)`, floating-point.
        key: `(..., S, E)`, of the same dtype.
        value: `(..., S, Ev)`, of the same dtype. Leading dimensions are broadcast.
        attn_mask: Broadcastable to `(..., L, S)`. Bool: True where to attend. Query's dtype or float32: added to
            scores.
        dropout_p: Probability of zeroing an attention weight; the others are divided by 1 - dropout_p. It is always
            applied, because this function has no training mode.
        is_causal: Let position i attend to positions up to i only; with `attn_mask`, to those of them that it allows.
        scale: Factor of the scores; None means 1 / sqrt(E).
        enable_gqa: Grouped-query attention: the query's heads (dimension -3) may be a multiple of the key's and
            value's.

    Returns:
        `(..., L, Ev)`.

    Raises:
        DTypeError: If dtypes differ or are not floating-point.
        ShapeError: If shapes do not fit.
        DomainError: If dropout_p is above 1.
        IndexOutOfRange: If an operand has no heads with `enable_gqa`.

    Example:
        >>> query, key = wg.zeros(1, 2), wg.zeros(2, 2)
        >>> wg.nn.functional.scaled_dot_product_attention(query, key, wg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[2., 3.]])
    """
    only_tensors(_OP_NAME, query, key, value, *(() if attn_mask is None else (attn_mask,)))
    query, key, value, attn_mask = autocast_operands(_attention, query, key, value, attn_mask)
    _check_dtypes(query.meta, key.meta, value.meta, attn_mask)
    if dropout_p > 1:
        raise DomainError(f"{_OP_NAME}: dropout_p is a probability, between 0 and 1, not {dropout_p}")
    outer_shape, batch_shape = _leading_shapes(query.meta.shape, key.meta.shape, value.meta.shape, enable_gqa)
    rows, keys = query.meta.shape[-2], key.meta.shape[-2]
    q, k, v = _as_batch_heads(query, key, value, outer_shape, enable_gqa)
    mask = None if attn_mask is None else _mask_as_4d(attn_mask, (*batch_shape, rows, keys))
    features = query.meta.shape[-1]
    scale_factor = (float(features) ** -0.5 if features else 1.0) if scale is None else float(scale)
    has_dropout = dropout_p > 0
    rescale = 1.0 / (1.0 - dropout_p) if dropout_p < 1 else 0.0
    seed, offset = _random.default_generator.take(1) if has_dropout else (0, 0)
    operands = (q, k, v, mask, scale_factor, float(dropout_p), rescale, seed, offset)
    statics = (bool(is_causal), has_dropout)
    needs_composed = is_recorded(mask)
    if needs_composed or not is_supported(q.meta, k.meta, v.meta):
        output = attention_by_ops(operands, statics)
    else:
        output = call_multiple(_attention, operands, statics)[0]
    return views.reshape(output, (*batch_shape, rows, value.meta.shape[-1]))


def _check_dtypes(query: Meta, key: Meta, value: Meta, mask: Tensor | None) -> None:
    dtype_names = f"query {query.dtype.name}, key {key.dtype.name}, value {value.dtype.name}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        shapes = ", ".join(str(list(m.shape)) for m in (query, key, value))
        raise ShapeError(f"{_OP_NAME}: query, key and value need at least 2 dimensions, not shapes {shapes}")
    if key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise DTypeError(f"{_OP_NAME}: query, key and value need one dtype, not {dtype_names}; convert with .to()")
    if query.dtype.kind != "f":
        raise DTypeError(f"{_OP_NAME}: takes floating dtypes, not {dtype_names}; convert with .to()")
    if mask is None:
        return
    if mask.meta.dtype not in (dtypes.bool_, dtypes.float32, query.dtype):
        raise DTypeError(
            f"{_OP_NAME}: attn_mask must be bool, float32 or {query.dtype.name} as the query, "
            f"not {mask.meta.dtype.name}"
        )


def _leading_shapes(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], is_gqa: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the broadcast leading dimensions without grouped heads, and all leading dimensions of the output."""
    call = f"{_OP_NAME}(query {list(query)}, key {list(key)}, value {list(value)})"
    if query[-1] != key[-1]:
        raise ShapeError(f"{call}: query and key need the same number of features, their last dimension")
    if key[-2] != value[-2]:
        raise ShapeError(f"{call}: key and value need the same number of positions, dimension -2")
    if not is_gqa:
        outer_shape = layout.broadcast([query[:-2], key[:-2], value[:-2]], call)
        return outer_shape, outer_shape
    if min(len(query), len(key), len(value)) < 3:
        raise IndexOutOfRange(f"{call}: enable_gqa needs heads, dimension -3")
    if any(not n or query[-3] % n for n in (key[-3], value[-3])):
        raise ShapeError(
            f"{call}: with enable_gqa the heads (dimension -3) of key and value must divide those of the query"
        )
    outer_shape = layout.broadcast([query[:-3], key[:-3], value[:-3]], call)
    return outer_shape, (*outer_shape, query[-3])


def _as_batch_heads(
    query: Tensor, key: Tensor, value: Tensor, outer_shape: tuple[int, ...], is_gqa: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the operands as (batch, heads, positions, features).

    The heads of key and value divide those of the query.
    """
    if not is_gqa:
        kv_heads = (
            (1,)
            if outer_shape and all(tensor.meta.shape[:-2][-1:] in ((), (1,)) for tensor in (key, value))
            else outer_shape[-1:]
        )
        outer, heads = outer_shape[:-1], [outer_shape[-1:], kv_heads, kv_heads]
    else:
        outer, heads = outer_shape, [tensor.meta.shape[-3:-2] for tensor in (query, key, value)]
        if heads[1] != heads[2]:
            key, value = (_repeat_heads(tensor, query.meta.shape[-3]) for tensor in (key, value))
            heads = [heads[0]] * 3
    operands = [
        _as_4d(tensor, (*outer, *head_shape), tensor.meta.shape[-2:])
        for tensor, head_shape in zip((query, key, value), heads, strict=True)
    ]
    return operands[0], operands[1], operands[2]


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Repeat each head consecutively until there are `heads`."""
    *outer, kv_heads, count, features = tensor.meta.shape
    repeated = _ops.expand(_ops.unsqueeze(tensor, -3), (*outer, kv_heads, heads // kv_heads, count, features))
    return views.reshape(repeated, (*outer, heads, count, features))


def _as_4d(tensor: Tensor, leading: Sequence[int], matrix_shape: tuple[int, ...]) -> Tensor:
    """Broadcast `tensor` to the leading shape, and flatten that to two dimensions."""
    shape = (*leading, *matrix_shape)
    if tensor.meta.shape != shape:
        tensor = _ops.expand(tensor, shape)
    batch_and_heads = (prod(leading[:-1]), leading[-1]) if leading else (1, 1)
    return tensor if len(leading) == 2 else views.reshape(tensor, (*batch_and_heads, *matrix_shape))


def _mask_as_4d(mask: Tensor, scores_shape: tuple[int, ...]) -> Tensor:
    """Return a 4-D mask that broadcasts to the scores. Broadcast dimensions keep size 1 or stride 0."""
    shape = mask.meta.shape
    padded = (1,) * (len(scores_shape) - len(shape)) + shape
    if len(shape) > len(scores_shape) or any(m not in (1, n) for m, n in zip(padded, scores_shape, strict=True)):
        raise ShapeError(f"{_OP_NAME}: attn_mask of shape {list(shape)} does not broadcast to {list(scores_shape)}")
    if len(padded) <= 4 or all(n == 1 for n in padded[:-3]):
        shape_4d = ((1, 1) + padded)[-4:]
        return mask if shape == shape_4d else _ops.view(mask, shape_4d)
    expanded = _ops.expand(mask, (*scores_shape[:-3], *padded[-3:]))
    return views.reshape(expanded, (prod(scores_shape[:-3]), *padded[-3:]))
