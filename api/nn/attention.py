"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import random as _random
from .._checks import only_tensors
from .._generated import ops as _ops
from ..runtime import dtypes, layout, views
from ..runtime.autocast import as_for
from ..runtime.autograd.attention_rules import composed
from ..runtime.device import Meta
from ..runtime.dispatch import call, is_recorded
from ..runtime.errors import DomainError, DTypeError, IndexOutOfRange, ShapeError
from ..runtime.kinds.attention import takes
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]

_WHERE = "scaled_dot_product_attention"
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
    """softmax(scale * query · keyᵀ + attn_mask) · value over the last two dimensions (Vaswani et al. 2017).

    query: (…, L, E); key: (…, S, E); value: (…, S, Ev); the result is (…, L, Ev), leading dimensions broadcast. All of
    one floating dtype; half types are computed in float32. attn_mask broadcasts to (…, L, S): of bool, True where to
    attend, or of the query's dtype (or float32), added. A row that attends to nothing is 0. is_causal: position i
    attends to positions up to i. scale: 1/√E unless given. enable_gqa: dimension -3 of the query, its heads, may be a
    multiple of the key's and the value's, of which neighbours share one. dropout_p: probabilities are 0 with this
    chance, always (there is no training mode here), else divided by 1 - dropout_p; backward draws the same numbers.

    No score is stored: forward and backward need memory linear in L and S (Dao 2023). A second derivative and the
    gradient of a mask do store them, as do operands of more features than kernels take. Raises `DTypeError`,
    `ShapeError`, and `DomainError` for a mask beside is_causal or a dropout_p above 1.
    """
    only_tensors(_WHERE, query, key, value, *(() if attn_mask is None else (attn_mask,)))
    query, key, value, attn_mask = as_for(_attention, query, key, value, attn_mask)
    _check_dtypes(query.meta, key.meta, value.meta, attn_mask)
    if attn_mask is not None and is_causal:
        raise DomainError(f"{_WHERE}: give attn_mask or is_causal, not both; put the causal part into the mask")
    if dropout_p > 1:
        raise DomainError(f"{_WHERE}: dropout_p is a probability, between 0 and 1, not {dropout_p}")
    lead, whole = _lead(query.meta.shape, key.meta.shape, value.meta.shape, enable_gqa)
    rows, keys = query.meta.shape[-2], key.meta.shape[-2]
    q, k, v = _grouped(query, key, value, lead, enable_gqa)
    mask = None if attn_mask is None else _mask(attn_mask, (*whole, rows, keys))
    width = query.meta.shape[-1]
    factor = (float(width) ** -0.5 if width else 1.0) if scale is None else float(scale)
    dropping = dropout_p > 0
    rescale = 1.0 / (1.0 - dropout_p) if dropout_p < 1 else 0.0
    seed, offset = _random.default_generator.take(1) if dropping else (0, 0)
    operands = (q, k, v, mask, factor, float(dropout_p), rescale, seed, offset)
    statics = (bool(is_causal), dropping)
    by_ops = is_recorded(mask)
    if by_ops or not takes(q.meta, k.meta, v.meta):
        out = composed(operands, statics)
    else:
        out = call(_attention, operands, statics)[0]
    return views.reshape(out, (*whole, rows, value.meta.shape[-1]))


def _check_dtypes(query: Meta, key: Meta, value: Meta, mask: Tensor | None) -> None:
    shown = f"query {query.dtype.name}, key {key.dtype.name}, value {value.dtype.name}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        shapes = ", ".join(str(list(m.shape)) for m in (query, key, value))
        raise ShapeError(f"{_WHERE}: query, key and value need at least 2 dimensions, not shapes {shapes}")
    if key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise DTypeError(f"{_WHERE}: query, key and value need one dtype, not {shown}; convert with .to()")
    if query.dtype.kind != "f":
        raise DTypeError(f"{_WHERE}: takes floating dtypes, not {shown}; convert with .to()")
    if mask is None:
        return
    if mask.meta.dtype not in (dtypes.bool_, dtypes.float32, query.dtype):
        raise DTypeError(
            f"{_WHERE}: attn_mask must be bool, float32 or {query.dtype.name} as the query, not {mask.meta.dtype.name}"
        )
    if mask.meta.ndim < 2:
        raise IndexOutOfRange(f"{_WHERE}: attn_mask needs at least 2 dimensions, not shape {list(mask.meta.shape)}")


def _lead(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], grouped: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The leading dimensions apart from grouped heads, broadcast, and all those of the result."""
    where = f"{_WHERE}(query {list(query)}, key {list(key)}, value {list(value)})"
    if query[-1] != key[-1]:
        raise ShapeError(f"{where}: query and key need the same number of features, their last dimension")
    if key[-2] != value[-2]:
        raise ShapeError(f"{where}: key and value need the same number of positions, dimension -2")
    if not grouped:
        lead = layout.broadcast([query[:-2], key[:-2], value[:-2]], where)
        return lead, lead
    if min(len(query), len(key), len(value)) < 3:
        raise IndexOutOfRange(f"{where}: enable_gqa needs heads, dimension -3")
    if any(not n or query[-3] % n for n in (key[-3], value[-3])):
        raise ShapeError(
            f"{where}: with enable_gqa the heads (dimension -3) of key and value must divide those of the query"
        )
    lead = layout.broadcast([query[:-3], key[:-3], value[:-3]], where)
    return lead, (*lead, query[-3])


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, lead: tuple[int, ...], grouped: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The operands as (batch, heads, position, feature); heads of the key and the value divide the query's."""
    if not grouped:
        own = (1,) if lead and all(t.meta.shape[:-2][-1:] in ((), (1,)) for t in (key, value)) else lead[-1:]
        outer, heads = lead[:-1], [lead[-1:], own, own]
    else:
        outer, heads = lead, [t.meta.shape[-3:-2] for t in (query, key, value)]
        if heads[1] != heads[2]:
            key, value = (_repeated(t, query.meta.shape[-3]) for t in (key, value))
            heads = [heads[0]] * 3
    found = [_four(t, (*outer, *h), t.meta.shape[-2:]) for t, h in zip((query, key, value), heads, strict=True)]
    return found[0], found[1], found[2]


def _repeated(tensor: Tensor, heads: int) -> Tensor:
    """Every head as often in a row as gives `heads`."""
    *outer, own, count, width = tensor.meta.shape
    split = _ops.expand(_ops.unsqueeze(tensor, -3), (*outer, own, heads // own, count, width))
    return views.reshape(split, (*outer, heads, count, width))


def _four(tensor: Tensor, lead: Sequence[int], own: tuple[int, ...]) -> Tensor:
    """`tensor` broadcast to `lead`, which become two dimensions."""
    shape = (*lead, *own)
    if tensor.meta.shape != shape:
        tensor = _ops.expand(tensor, shape)
    two = (prod(lead[:-1]), lead[-1]) if lead else (1, 1)
    return tensor if len(lead) == 2 else views.reshape(tensor, (*two, *own))


def _mask(mask: Tensor, whole: tuple[int, ...]) -> Tensor:
    """A mask with four dimensions that broadcast to those of the scores; expanded ones stay of size 1, or stride 0."""
    shape = mask.meta.shape
    padded = (1,) * (len(whole) - len(shape)) + shape
    if len(shape) > len(whole) or any(m not in (1, n) for m, n in zip(padded, whole, strict=True)):
        raise ShapeError(f"{_WHERE}: attn_mask of shape {list(shape)} does not broadcast to {list(whole)}")
    if len(padded) <= 4 or all(n == 1 for n in padded[:-3]):
        four = ((1, 1) + padded)[-4:]
        return mask if shape == four else _ops.view(mask, four)
    wide = _ops.expand(mask, (*whole[:-3], *padded[-3:]))
    return views.reshape(wide, (prod(whole[:-3]), *padded[-3:]))
