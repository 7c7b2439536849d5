"""The computation of `MultiheadAttention`: projections, heads and masks (Vaswani et al. 2017, section 3.2.2)."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from .._generated import ops as _ops
from ..layer_functions.padding import pad
from ..linear_algebra.products import linear, matmul
from ..runtime import dtypes, views
from ..runtime.dtypes import DType
from ..runtime.errors import AttentionShapeError, DomainError, ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ._dropout import dropout
from .attention import scaled_dot_product_attention

__all__ = ["Heads", "additive_mask", "attend_heads", "multi_head_attention_forward"]

_OP_NAME = "multi_head_attention_forward"


class Heads(NamedTuple):
    """Parameters of multi-head attention, named as in `multi_head_attention_forward`.

    `in_proj_weight` packs the three input projections; otherwise `separate` has one weight each.
    """

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
    """Compute multi-head attention with input and output projections.

    Args:
        query: `(L, N, E)` or `(L, E)`.
        key: `(S, N, kE)` or `(S, kE)`.
        value: `(S, N, vE)` or `(S, vE)`.
        embed_dim_to_check: E.
        num_heads: Number of heads, a divisor of E.
        in_proj_weight: `(3 E, E)`, the projections of query, key and value one below the other.
        in_proj_bias: `(3 E)` or None.
        bias_k: `(1, 1, E)`, an additional position of the key, or None.
        bias_v: `(1, 1, E)`, an additional position of the value, or None.
        add_zero_attn: Append a position of zeros to key and value.
        dropout_p: Probability of dropping an attention weight in training.
        out_proj_weight: `(E, E)`.
        out_proj_bias: `(E)` or None.
        training: Whether dropout is applied.
        key_padding_mask: `(N, S)` or `(S)`. Bool: True where NOT to attend, the opposite of
            `scaled_dot_product_attention`. Floating-point: added to the scores.
        need_weights: Return the attention weights. False stores nothing of the size of the scores.
        attn_mask: `(L, S)` or `(N * num_heads, L, S)`, with the same meaning as `key_padding_mask`.
        use_separate_proj_weight: Use the three weights that follow instead of `in_proj_weight`.
        q_proj_weight: `(E, E)`.
        k_proj_weight: `(E, kE)`.
        v_proj_weight: `(E, vE)`.
        static_k: `(N * num_heads, S, E / num_heads)`, used in place of the projected key.
        static_v: The same for the value.
        average_attn_weights: Average the weights over the heads.
        is_causal: States that `attn_mask` is the causal mask, which then need not be read.

    Returns:
        (output of the query's shape, attention weights or None). The weights are `(N, L, S)`, or `(N, num_heads, L, S)`
        without averaging.

    Raises:
        AttentionShapeError: If shapes do not fit. It is also an `AssertionError`, as in PyTorch.
        DomainError: If `is_causal` is passed without `attn_mask`.

    Example:
        >>> x, weight = wg.ones(3, 1, 2), wg.eye(2)
        >>> output, weights = wg.nn.functional.multi_head_attention_forward(
        ...     x, x, x, 2, 1, wg.ones(6, 2), None, None, None, False, 0.0, weight, None)
        >>> output.shape, weights.shape
        (weftgrad.Size([3, 1, 2]), weftgrad.Size([1, 3, 3]))
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    heads = Heads(embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
                  out_proj_weight, out_proj_bias, separate)  # fmt: skip
    return attend_heads(
        (query, key, value), heads, dropout_p if training else 0.0, key_padding_mask, attn_mask, need_weights,
        average_attn_weights, is_causal, static_kv=(static_k, static_v),
    )  # fmt: skip


def attend_heads(
    operands: tuple[Tensor, Tensor, Tensor],
    heads: Heads,
    dropout_p: float,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    need_weights: bool,
    average_weights: bool,
    is_causal: bool,
    *,
    batch_first: bool = False,
    static_kv: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """Compute `multi_head_attention_forward` for operands `(L, N, E)`, `(N, L, E)` with `batch_first`, or `(L, E)`."""
    query, key, value = operands
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, heads.num_heads)
    batch_dim = 0 if batch_first and batched else 1
    if not batched:
        key_is_query, value_is_key = key is query, value is key
        query = _ops.unsqueeze(query, 1)
        key = query if key_is_query else _ops.unsqueeze(key, 1)
        value = key if value_is_key else _ops.unsqueeze(value, 1)
        key_padding_mask = None if key_padding_mask is None else _ops.unsqueeze(key_padding_mask, 0)
    _check_sizes(query, key, value, heads)
    if is_causal and attn_mask is None:
        raise DomainError(
            f"{_OP_NAME}: is_causal states that attn_mask is the causal one, so pass it: "
            "Transformer.generate_square_subsequent_mask(L)"
        )
    _check_mask_dtypes(key_padding_mask, attn_mask)
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        is_causal = False
    batch_size, rows = query.meta.shape[batch_dim], query.meta.shape[1 - batch_dim]
    q, k, v = _project(query, key, value, heads, batch_dim, static_kv)
    extra_keys = int(heads.bias_k is not None) + int(heads.add_zero_attn)
    if heads.add_zero_attn:
        k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
    keys = k.meta.shape[2]
    merged_mask = _merge_masks(
        key_padding_mask,
        attn_mask,
        (batch_size, heads.num_heads, rows, keys),
        extra_keys,
        need_weights,
        query.meta.dtype,
    )
    weights = None
    if need_weights:
        weights = _attention_weights(q, k, merged_mask)
        dropped_weights = weights
        if dropout_p > 0:
            weights = dropped_weights = dropout(dropped_weights, dropout_p)
        head_outputs = matmul(dropped_weights, v)
    else:
        head_outputs = scaled_dot_product_attention(q, k, v, merged_mask, dropout_p, is_causal)
    order = (0, 2, 1, 3) if batch_dim == 0 else (2, 0, 1, 3)
    concatenated = views.reshape(_ops.permute(head_outputs, order), (*query.meta.shape[:2], heads.embed_dim))
    output = linear(concatenated, heads.out_proj_weight, heads.out_proj_bias)
    if weights is not None and average_weights:
        weights = _ops.mean(weights, 1)
    if batched:
        return output, weights
    return _ops.squeeze(output, 1), None if weights is None else _ops.squeeze(weights, 0)


# Checks


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Return whether the operands are batched. Raise `AttentionShapeError` if numbers of dimensions do not fit."""
    ndim = query.meta.ndim
    if ndim not in (2, 3):
        raise AttentionShapeError(
            f"{_OP_NAME}: query needs 3 dimensions, or 2 without a batch, not shape {list(query.meta.shape)}"
        )
    for name, operand in (("key", key), ("value", value)):
        if operand.meta.ndim != ndim:
            raise AttentionShapeError(
                f"{_OP_NAME}: query has shape {list(query.meta.shape)}, so {name} needs {ndim} dimensions, not shape "
                f"{list(operand.meta.shape)}"
            )
    if padding is not None and padding.meta.ndim != ndim - 1:
        raise AttentionShapeError(
            f"{_OP_NAME}: query has shape {list(query.meta.shape)}, so key_padding_mask needs {ndim - 1} dimensions "
            f"({'N, S' if ndim == 3 else 'S'}), not shape {list(padding.meta.shape)}"
        )
    if mask is not None:
        if mask.meta.ndim not in (2, 3):
            raise AttentionShapeError(
                f"{_OP_NAME}: attn_mask needs 2 dimensions (L, S), or 3 (N * num_heads, L, S), not shape "
                f"{list(mask.meta.shape)}"
            )
        expected_shape = (heads, query.meta.shape[0], key.meta.shape[0])
        if ndim == 2 and mask.meta.ndim == 3 and mask.meta.shape != expected_shape:
            raise AttentionShapeError(
                f"{_OP_NAME}: attn_mask must have shape {list(expected_shape)} without a batch, "
                f"not {list(mask.meta.shape)}"
            )
    return ndim == 3


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, heads: Heads) -> None:
    features = query.meta.shape[2]
    if features != heads.embed_dim:
        raise AttentionShapeError(
            f"{_OP_NAME}: query has {features} features, and the weights are for {heads.embed_dim}"
        )
    if features % heads.num_heads:
        raise AttentionShapeError(f"{_OP_NAME}: {features} features do not fall into {heads.num_heads} heads")
    shapes_to_match = (
        (key.meta.shape[:2], value.meta.shape[:2]) if heads.separate else (key.meta.shape, value.meta.shape)
    )
    if shapes_to_match[0] != shapes_to_match[1]:
        raise AttentionShapeError(
            f"{_OP_NAME}: key has shape {list(key.meta.shape)} and value {list(value.meta.shape)}, which do not fit"
        )
    weights_by_name = zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), heads.separate or (), strict=False)
    for name, weight in weights_by_name if heads.separate else (("in_proj_weight", heads.in_proj_weight),):
        if weight is None:
            raise AttentionShapeError(f"{_OP_NAME}: {name} is missing; see use_separate_proj_weight")
    if (heads.bias_k is None) != (heads.bias_v is None):
        raise AttentionShapeError(f"{_OP_NAME}: bias_k and bias_v go together; one of them is missing")


def _check_mask_dtypes(padding: Tensor | None, mask: Tensor | None) -> None:
    for name, mask_tensor in (("key_padding_mask", padding), ("attn_mask", mask)):
        if (
            mask_tensor is not None
            and mask_tensor.meta.dtype is not dtypes.bool_
            and mask_tensor.meta.dtype.kind != "f"
        ):
            raise AttentionShapeError(
                f"{_OP_NAME}: {name} is of bool or floating, not of {mask_tensor.meta.dtype.name}"
            )
    if padding is not None and mask is not None and padding.meta.dtype is not mask.meta.dtype:
        warnings.warn(
            "key_padding_mask and attn_mask of different dtypes are deprecated; use the same for both", stacklevel=4
        )


# Projections


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: Heads,
    batch_dim: int,
    static_kv: tuple[Tensor | None, Tensor | None],
) -> tuple[Tensor, Tensor, Tensor]:
    """Project query, key and value to (batch, head, position, feature).

    Append the positions of `bias_k` and `bias_v`.
    """
    if heads.separate is not None:
        biases = (None,) * 3 if heads.in_proj_bias is None else _split_in_three(heads.in_proj_bias, 0)
        q, k, v = (
            linear(x, weight, bias)
            for x, weight, bias in zip((query, key, value), heads.separate, biases, strict=True)
            if weight is not None  # `_check_sizes` has raised an error for None
        )
    else:
        q, k, v = _project_packed(query, key, value, heads)
    if heads.bias_k is not None:
        if any(x is not None for x in static_kv):
            raise AttentionShapeError(f"{_OP_NAME}: bias_k and bias_v cannot be added to static_k and static_v")
        k, v = _append_bias_position(k, heads.bias_k, batch_dim), _append_bias_position(v, heads.bias_v, batch_dim)
    order = (0, 2, 1, 3) if batch_dim == 0 else (1, 2, 0, 3)
    head_dim = heads.embed_dim // heads.num_heads
    q, k, v = (
        _ops.permute(x if x.meta.ndim == 4 else views.reshape(x, (*x.meta.shape[:2], heads.num_heads, head_dim)), order)
        for x in (q, k, v)
    )
    rows = query.meta.shape[batch_dim] * heads.num_heads
    other_k = _static_heads(static_kv[0], "static_k", rows, head_dim, heads.num_heads)
    other_v = _static_heads(static_kv[1], "static_v", rows, head_dim, heads.num_heads)
    return q, k if other_k is None else other_k, v if other_v is None else other_v


def _project_packed(query: Tensor, key: Tensor, value: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Apply the three projections of `in_proj_weight`, with one matrix product for operands that are the same tensor.

    A product that is split afterwards is returned as (..., head, feature), because its parts are not contiguous.
    """
    weight, bias, features = heads.in_proj_weight, heads.in_proj_bias, heads.embed_dim
    assert weight is not None
    head_shape = (heads.num_heads, features // heads.num_heads)
    if query is key and key is value:
        qkv = linear(query, weight, bias)
        return _split_in_three(views.reshape(qkv, (*query.meta.shape[:2], 3 * head_shape[0], head_shape[1])), 2)
    if key is value:
        kv_bias = None if bias is None else _ops.narrow(bias, 0, features, 2 * features)
        q_bias = None if bias is None else _ops.narrow(bias, 0, 0, features)
        kv = linear(key, _ops.narrow(weight, 0, features, 2 * features), kv_bias)
        k, v = _split_in_two(views.reshape(kv, (*key.meta.shape[:2], 2 * head_shape[0], head_shape[1])), 2)
        return linear(query, _ops.narrow(weight, 0, 0, features), q_bias), k, v
    biases = (None,) * 3 if bias is None else _split_in_three(bias, 0)
    projected = [
        linear(x, w, b) for x, w, b in zip((query, key, value), _split_in_three(weight, 0), biases, strict=True)
    ]
    return projected[0], projected[1], projected[2]


def _split_in_two(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    size = x.meta.shape[dim] // 2
    return _ops.narrow(x, dim, 0, size), _ops.narrow(x, dim, size, size)


def _split_in_three(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    size = x.meta.shape[dim] // 3
    return (
        _ops.narrow(x, dim, 0, size),
        _ops.narrow(x, dim, size, size),
        _ops.narrow(x, dim, 2 * size, size),
    )


def _append_bias_position(x: Tensor, bias: Tensor | None, batch_dim: int) -> Tensor:
    """Append a position to `x`: `bias` of shape (1, 1, E), for every sample."""
    assert bias is not None
    x = views.reshape(x, (*x.meta.shape[:2], bias.meta.shape[-1]))
    shape = tuple(n if d == batch_dim else 1 for d, n in enumerate(x.meta.shape[:2]))
    return cat((x, _ops.expand(bias, (*shape, bias.meta.shape[-1]))), 1 - batch_dim)


def _static_heads(x: Tensor | None, name: str, rows: int, width: int, heads: int) -> Tensor | None:
    if x is None:
        return None
    if x.meta.ndim != 3 or x.meta.shape[0] != rows or x.meta.shape[2] != width:
        raise AttentionShapeError(f"{_OP_NAME}: {name} must have shape [{rows}, S, {width}], not {list(x.meta.shape)}")
    return views.reshape(x, (rows // heads, heads, *x.meta.shape[1:]))


# Masks


def additive_mask(mask: Tensor | None, dtype: DType) -> Tensor | None:
    """Return a mask that is added to scores: a bool mask becomes -inf where it is True, 0 elsewhere."""
    if mask is None or mask.meta.dtype.kind == "f":
        return mask
    return _ops.where(mask, float("-inf"), _ops.full_like_as(mask, 0.0, dtype=dtype))


def _merge_masks(
    padding: Tensor | None,
    mask: Tensor | None,
    scores: tuple[int, int, int, int],
    extra_keys: int,
    need_weights: bool,
    dtype: DType,
) -> Tensor | None:
    """Combine both masks into one that broadcasts to the scores. The last `extra_keys` keys are never masked.

    The result is additive. If both masks are bool and no weights are needed, it is bool, True where to attend.
    """
    batch_size, heads, rows, keys = scores
    if mask is not None:
        expected_shape = (
            (rows, keys - extra_keys) if mask.meta.ndim == 2 else (batch_size * heads, rows, keys - extra_keys)
        )
        if mask.meta.shape != expected_shape:
            raise ShapeError(
                f"{_OP_NAME}: attn_mask has shape {list(mask.meta.shape)}, and should have {list(expected_shape)}"
            )
        shape_4d = (1, 1, *expected_shape) if mask.meta.ndim == 2 else (batch_size, heads, *expected_shape[1:])
        mask = views.reshape(mask, shape_4d)
    if padding is not None:
        if padding.meta.shape != (batch_size, keys - extra_keys):
            raise AttentionShapeError(
                f"{_OP_NAME}: key_padding_mask has shape {list(padding.meta.shape)}, and should have "
                f"{[batch_size, keys - extra_keys]}"
            )
        padding = views.reshape(padding, (batch_size, 1, 1, keys - extra_keys))
    masks = [m for m in (mask, padding) if m is not None]
    if not masks:
        return None
    is_boolean = not need_weights and all(m.meta.dtype is dtypes.bool_ for m in masks)
    if not is_boolean:
        masks = [m for m in (additive_mask(m, dtype) for m in masks) if m is not None]
    merged = masks[0] if len(masks) == 1 else _ops.logical_or(*masks) if is_boolean else _ops.add(*masks)
    if extra_keys:
        merged = pad(merged, (0, extra_keys))
    return _ops.logical_not(merged) if is_boolean else merged


def _attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Return softmax of the scaled scores. A row that attends to nothing is NaN."""
    scores = matmul(_ops.mul(q, float(q.meta.shape[-1]) ** -0.5), _ops.transpose(k, -2, -1))
    return _ops.softmax(scores if mask is None else _ops.add(scores, mask), -1)
