"""Attention in heads between projections: what `MultiheadAttention` computes (Vaswani et al. 2017, section 3.2.2)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._generated import ops as _ops
from ..joining import cat
from ..padding import pad
from ..products import linear, matmul
from ..runtime import dtypes, views
from ..runtime.dtypes import DType
from ..runtime.errors import AttentionShapeError, DomainError, ShapeError
from ..runtime.tensor import Tensor
from .attention import scaled_dot_product_attention

__all__ = ["Heads", "additive", "attended", "multi_head_attention_forward"]

_WHERE = "multi_head_attention_forward"


class Heads(NamedTuple):
    """Parameters of attention in `num_heads` heads over `embed_dim` features, as `multi_head_attention_forward` names
    them; those of the projections either packed in `in_proj_weight` or one each."""

    embed_dim: int
    num_heads: int
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    add_zero_attn: bool
    out_proj_weight: Tensor
    out_proj_bias: Tensor | None
    separate: tuple[Tensor | None, Tensor | None, Tensor | None] | None = None


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Query, key and value projected, attended to in `num_heads` parts of their features, and projected again.

    query: (L, N, E) or (L, E); key: (S, N, kE) or (S, kE); value likewise. in_proj_weight: (3 E, E), the three
    projections one above another, or with `use_separate_proj_weight` one each: (E, E), (E, kE), (E, vE).
    in_proj_bias: (3 E). bias_k, bias_v: (1, 1, E), one more position of key and value; `add_zero_attn`: one of zeros.
    static_k, static_v: (N * num_heads, S, E / num_heads), in the place of projected ones. key_padding_mask: (N, S) or
    (S); attn_mask: (L, S) or (N * num_heads, L, S); of bool, True where NOT to attend (the opposite of
    `scaled_dot_product_attention`), else added to the scores. is_causal: `attn_mask` is the causal one, which is then
    not read where neither weights nor padding ask for it.

    Returns the result, shaped as the query, and with `need_weights` the probabilities, (N, L, S), or
    (N, num_heads, L, S) unless `average_attn_weights`. Without them nothing of the size of the scores is stored.
    Raises `AttentionShapeError` (an AssertionError as in PyTorch), `ShapeError`, `DTypeError`, `DomainError`.
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    heads = Heads(embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
                  out_proj_weight, out_proj_bias, separate)  # fmt: skip
    return attended(
        (query, key, value), heads, dropout_p if training else 0.0, key_padding_mask, attn_mask, need_weights,
        average_attn_weights, is_causal, static=(static_k, static_v),
    )  # fmt: skip


def attended(
    given: tuple[Tensor, Tensor, Tensor],
    heads: Heads,
    dropout_p: float,
    padding: Tensor | None,
    mask: Tensor | None,
    need_weights: bool,
    average: bool,
    is_causal: bool,
    *,
    batch_first: bool = False,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """`multi_head_attention_forward` of operands (L, N, E), or (N, L, E) with `batch_first`; or (L, E)."""
    query, key, value = given
    batched = _check_shapes(query, key, value, padding, mask, heads.num_heads)
    batch = 0 if batch_first and batched else 1
    if not batched:
        same_key, same_value = key is query, value is key
        query = _ops.unsqueeze(query, 1)
        key = query if same_key else _ops.unsqueeze(key, 1)
        value = key if same_value else _ops.unsqueeze(value, 1)
        padding = None if padding is None else _ops.unsqueeze(padding, 0)
    _check_sizes(query, key, value, heads)
    if is_causal and mask is None:
        raise DomainError(
            f"{_WHERE}: is_causal says that attn_mask is the causal one, so give it: "
            "Transformer.generate_square_subsequent_mask(L)"
        )
    _warn_of_mixed(padding, mask)
    if is_causal and padding is None and not need_weights:
        mask = None
    else:
        is_causal = False
    count, rows = query.meta.shape[batch], query.meta.shape[1 - batch]
    q, k, v = _projected(query, key, value, heads, batch, static)
    extra = int(heads.bias_k is not None) + int(heads.add_zero_attn)
    if heads.add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    keys = k.meta.shape[2]
    merged = _merged(padding, mask, (count, heads.num_heads, rows, keys), extra, need_weights, query.meta.dtype)
    weights = None
    if need_weights:
        weights = _weights(q, k, merged)
        chances = weights
        if dropout_p > 0:
            from .functional import dropout

            weights = chances = dropout(chances, dropout_p)
        found = matmul(chances, v)
    else:
        found = scaled_dot_product_attention(q, k, v, merged, dropout_p, is_causal)
    order = (0, 2, 1, 3) if batch == 0 else (2, 0, 1, 3)
    joined = views.reshape(_ops.permute(found, order), (*query.meta.shape[:2], heads.embed_dim))
    out = linear(joined, heads.out_proj_weight, heads.out_proj_bias)
    if weights is not None and average:
        weights = _ops.mean(weights, 1)
    if batched:
        return out, weights
    return _ops.squeeze(out, 1), None if weights is None else _ops.squeeze(weights, 0)


# Checks


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Whether the operands are batches. Raises `AttentionShapeError` for numbers of dimensions that do not fit."""
    ndim = query.meta.ndim
    if ndim not in (2, 3):
        raise AttentionShapeError(
            f"{_WHERE}: query needs 3 dimensions, or 2 without a batch, not shape {list(query.meta.shape)}"
        )
    for name, one in (("key", key), ("value", value)):
        if one.meta.ndim != ndim:
            raise AttentionShapeError(
                f"{_WHERE}: query has shape {list(query.meta.shape)}, so {name} needs {ndim} dimensions, not shape "
                f"{list(one.meta.shape)}"
            )
    if padding is not None and padding.meta.ndim != ndim - 1:
        raise AttentionShapeError(
            f"{_WHERE}: query has shape {list(query.meta.shape)}, so key_padding_mask needs {ndim - 1} dimensions "
            f"({'N, S' if ndim == 3 else 'S'}), not shape {list(padding.meta.shape)}"
        )
    if mask is not None:
        if mask.meta.ndim not in (2, 3):
            raise AttentionShapeError(
                f"{_WHERE}: attn_mask needs 2 dimensions (L, S), or 3 (N * num_heads, L, S), not shape "
                f"{list(mask.meta.shape)}"
            )
        wanted = (heads, query.meta.shape[0], key.meta.shape[0])
        if ndim == 2 and mask.meta.ndim == 3 and mask.meta.shape != wanted:
            raise AttentionShapeError(
                f"{_WHERE}: attn_mask must have shape {list(wanted)} without a batch, not {list(mask.meta.shape)}"
            )
    return ndim == 3


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, heads: Heads) -> None:
    width = query.meta.shape[2]
    if width != heads.embed_dim:
        raise AttentionShapeError(f"{_WHERE}: query has {width} features, and the weights are for {heads.embed_dim}")
    if width % heads.num_heads:
        raise AttentionShapeError(f"{_WHERE}: {width} features do not fall into {heads.num_heads} heads")
    same = (key.meta.shape[:2], value.meta.shape[:2]) if heads.separate else (key.meta.shape, value.meta.shape)
    if same[0] != same[1]:
        raise AttentionShapeError(
            f"{_WHERE}: key has shape {list(key.meta.shape)} and value {list(value.meta.shape)}, which do not fit"
        )
    named = zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), heads.separate or (), strict=False)
    for name, weight in named if heads.separate else (("in_proj_weight", heads.in_proj_weight),):
        if weight is None:
            raise AttentionShapeError(f"{_WHERE}: {name} is missing; see use_separate_proj_weight")
    if (heads.bias_k is None) != (heads.bias_v is None):
        raise AttentionShapeError(f"{_WHERE}: bias_k and bias_v go together; one of them is missing")


def _warn_of_mixed(padding: Tensor | None, mask: Tensor | None) -> None:
    for name, one in (("key_padding_mask", padding), ("attn_mask", mask)):
        if one is not None and one.meta.dtype is not dtypes.bool_ and one.meta.dtype.kind != "f":
            raise AttentionShapeError(f"{_WHERE}: {name} is of bool or floating, not of {one.meta.dtype.name}")
    if padding is not None and mask is not None and padding.meta.dtype is not mask.meta.dtype:
        warnings.warn(
            "key_padding_mask and attn_mask of different dtypes are deprecated; use the same for both", stacklevel=4
        )


# Projections


def _projected(
    query: Tensor, key: Tensor, value: Tensor, heads: Heads, batch: int, static: tuple[Tensor | None, Tensor | None]
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as (batch, head, position, feature), with the positions that `bias_k` and `bias_v` add."""
    if heads.separate is not None:
        biases: Sequence[Any] = (None,) * 3 if heads.in_proj_bias is None else _thirds(heads.in_proj_bias, 0)
        q, k, v = (
            linear(x, w, b)  # type: ignore[arg-type]  # `_check_sizes` found no None
            for x, w, b in zip((query, key, value), heads.separate, biases, strict=True)
        )  # fmt: skip
    else:
        q, k, v = _packed(query, key, value, heads)
    if heads.bias_k is not None:
        if any(x is not None for x in static):
            raise AttentionShapeError(f"{_WHERE}: bias_k and bias_v cannot be added to static_k and static_v")
        k, v = _longer(k, heads.bias_k, batch), _longer(v, heads.bias_v, batch)
    order = (0, 2, 1, 3) if batch == 0 else (1, 2, 0, 3)
    width = heads.embed_dim // heads.num_heads
    q, k, v = (
        _ops.permute(x if x.meta.ndim == 4 else views.reshape(x, (*x.meta.shape[:2], heads.num_heads, width)), order)
        for x in (q, k, v)
    )
    rows = query.meta.shape[batch] * heads.num_heads
    other_k = _static(static[0], "static_k", rows, width, heads.num_heads)
    other_v = _static(static[1], "static_v", rows, width, heads.num_heads)
    return q, k if other_k is None else other_k, v if other_v is None else other_v


def _packed(query: Tensor, key: Tensor, value: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """The three projections of which `in_proj_weight` has one above another; one product for what is the same tensor.

    What comes of a product that is cut is (…, head, feature) already, for it has gaps.
    """
    weight, bias, width = heads.in_proj_weight, heads.in_proj_bias, heads.embed_dim
    assert weight is not None
    own = (heads.num_heads, width // heads.num_heads)
    if query is key and key is value:
        whole = linear(query, weight, bias)
        return _cut(views.reshape(whole, (*query.meta.shape[:2], 3 * own[0], own[1])), 2, 3)  # type: ignore[return-value]
    if key is value:
        rest = None if bias is None else _ops.narrow(bias, 0, width, 2 * width)
        first = None if bias is None else _ops.narrow(bias, 0, 0, width)
        both = linear(key, _ops.narrow(weight, 0, width, 2 * width), rest)
        k, v = _cut(views.reshape(both, (*key.meta.shape[:2], 2 * own[0], own[1])), 2, 2)
        return linear(query, _ops.narrow(weight, 0, 0, width), first), k, v
    biases: Sequence[Any] = (None,) * 3 if bias is None else _thirds(bias, 0)
    found = [linear(x, w, b) for x, w, b in zip((query, key, value), _thirds(weight, 0), biases, strict=True)]
    return found[0], found[1], found[2]


def _cut(x: Tensor, dim: int, parts: int) -> tuple[Tensor, ...]:
    size = x.meta.shape[dim] // parts
    return tuple(_ops.narrow(x, dim, i * size, size) for i in range(parts))


def _thirds(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    return _cut(x, dim, 3)


def _longer(x: Tensor, bias: Tensor | None, batch: int) -> Tensor:
    """`x` with one more position: `bias`, (1, 1, E), for every sample."""
    assert bias is not None
    x = views.reshape(x, (*x.meta.shape[:2], bias.meta.shape[-1]))
    shape = tuple(n if d == batch else 1 for d, n in enumerate(x.meta.shape[:2]))
    return cat((x, _ops.expand(bias, (*shape, bias.meta.shape[-1]))), 1 - batch)


def _static(x: Tensor | None, name: str, rows: int, width: int, heads: int) -> Tensor | None:
    if x is None:
        return None
    if x.meta.ndim != 3 or x.meta.shape[0] != rows or x.meta.shape[2] != width:
        raise AttentionShapeError(f"{_WHERE}: {name} must have shape [{rows}, S, {width}], not {list(x.meta.shape)}")
    return views.reshape(x, (rows // heads, heads, *x.meta.shape[1:]))


# Masks


def additive(mask: Tensor | None, dtype: DType) -> Tensor | None:
    """A mask to be added to scores: one of bool is -inf where it is True."""
    if mask is None or mask.meta.dtype.kind == "f":
        return mask
    return _ops.where(mask, float("-inf"), _ops.full_like_as(mask, 0.0, dtype=dtype))


def _merged(
    padding: Tensor | None,
    mask: Tensor | None,
    scores: tuple[int, int, int, int],
    extra: int,
    need_weights: bool,
    dtype: DType,
) -> Tensor | None:
    """Both masks in one that broadcasts to the scores, which have `extra` positions of keys that are never masked.

    It is added; or, for `scaled_dot_product_attention`, says where to attend if both are of bool.
    """
    count, heads, rows, keys = scores
    if mask is not None:
        wanted = (rows, keys - extra) if mask.meta.ndim == 2 else (count * heads, rows, keys - extra)
        if mask.meta.shape != wanted:
            raise ShapeError(f"{_WHERE}: attn_mask has shape {list(mask.meta.shape)}, and should have {list(wanted)}")
        four = (1, 1, *wanted) if mask.meta.ndim == 2 else (count, heads, *wanted[1:])
        mask = views.reshape(mask, four)
    if padding is not None:
        if padding.meta.shape != (count, keys - extra):
            raise AttentionShapeError(
                f"{_WHERE}: key_padding_mask has shape {list(padding.meta.shape)}, and should have "
                f"{[count, keys - extra]}"
            )
        padding = views.reshape(padding, (count, 1, 1, keys - extra))
    some = [m for m in (mask, padding) if m is not None]
    if not some:
        return None
    by_bool = not need_weights and all(m.meta.dtype is dtypes.bool_ for m in some)
    if not by_bool:
        some = [m for m in (additive(m, dtype) for m in some) if m is not None]
    one = some[0] if len(some) == 1 else _ops.logical_or(*some) if by_bool else _ops.add(*some)
    if extra:
        one = pad(one, (0, extra))
    return _ops.logical_not(one) if by_bool else one


def _weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """The probabilities, stored: softmax of the scaled scores, NaN for a row that attends to nothing."""
    scores = matmul(_ops.mul(q, float(q.meta.shape[-1]) ** -0.5), _ops.transpose(k, -2, -1))
    return _ops.softmax(scores if mask is None else _ops.add(scores, mask), -1)
