"""Gradients of attention: by kernels that recompute the scores, or by ops if the gradient is differentiated again.

Let P be the probabilities, D the factors of dropout, g the gradient of the result, and S the scores (Dao et al.,
"FlashAttention", 2022, appendix B):

    grad_value = (D P)ᵀ g        dP = D (g valueᵀ)        dS = P (dP - rowsum(P dP))
    grad_query = scale dS key    grad_key = scale dSᵀ query

rowsum(P dP) equals rowsum(g result), so the kernels need no whole row of P at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from .. import dtypes
from ..dispatch import call, call_multiple, is_recorded
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node
from .rules import arange

if TYPE_CHECKING:
    from ..call_types import GradientFunction, Statics

__all__ = ["attention_by_ops", "rules"]

_OPERANDS = ("query", "key", "value", "mask", "scale", "p", "rescale", "seed", "offset")

_DropoutNumbers: TypeAlias = tuple[float, float, int, int]
"""The operands `p`, `rescale`, `seed` and `offset`."""

AttentionOperands: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor | None, float, float, float, int, int]
"""The operands of `attention`, in the order of `_OPERANDS`."""


class _Values(TypedDict, total=False):
    """What the rules read, and what they share: `delta`, and `attention`, the gradients by the name of the operand.

    A mask that is absent has no key.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor
    scale: float
    p: float
    rescale: float
    seed: int
    offset: int
    result: Tensor
    logsumexp: Tensor
    grad_result: Tensor
    delta: Tensor
    attention: dict[str, Tensor]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of `attention`.

    The mask has no rule: if it requires a gradient, the forward call runs as ops (`attention_by_ops`).
    """
    read = ("grad_result", "result", "logsumexp", *_OPERANDS)
    return {name: Rule(function=_rule(name), operands=read) for name in ("query", "key", "value")}


def _rule(name: str) -> GradientFunction:
    def gradient(node: Node, values: _Values, position: int) -> Tensor:
        gradients = values.setdefault("attention", {})
        if name not in gradients:
            by_ops = is_recorded(values["query"], values["key"], values["value"], values["grad_result"])
            gradients.update((_gradients_by_ops if by_ops else _gradients_by_kernels)(node, values, name))
        return gradients[name]

    return gradient


def _gradients_by_kernels(node: Node, values: _Values, name: str) -> dict[str, Tensor]:
    """Compute all gradients by kernels; if not all are needed, that of the query, or those of key and value."""
    if "delta" not in values:
        values["delta"] = call(registry["attention_delta"], (values["result"], values["grad_result"]))
    operands = (
        values["query"], values["key"], values["value"], values.get("mask"), values["grad_result"],
        values["logsumexp"], values["delta"], values["scale"], *_dropout_numbers(values),
    )  # fmt: skip
    needs_query, *needs_others = (position in node.recipe.edges for position in range(3))
    if needs_query and any(needs_others):
        gradients = call_multiple(registry["attention_gradients"], operands, node.statics)
        return dict(zip(("query", "key", "value"), gradients, strict=True))
    if name == "query":
        return {name: call(registry["attention_query"], operands, node.statics)}
    key, value = call_multiple(registry["attention_key_value"], operands, node.statics)
    return {"key": key, "value": value}


def _op(name: str, *operands: object, statics: Statics = ()) -> Tensor:
    return call(registry[name], operands, statics)


def _transpose(tensor: Tensor) -> Tensor:
    return _op("transpose", tensor, statics=(-2, -1))


def _to_compute_dtype(tensor: Tensor) -> Tensor:
    """Convert half types to float32, in which kernels compute."""
    return _op("copy", tensor, statics=(dtypes.float32,)) if tensor.meta.dtype.itemsize == 2 else tensor


def _to_dtype_of(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.meta.dtype is like.meta.dtype else _op("copy", tensor, statics=(like.meta.dtype,))


def _repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Repeat each head of a key or value for the heads of the query that share it (grouped-query attention)."""
    batch, kv_heads, count, features = tensor.meta.shape
    if kv_heads == heads:
        return tensor
    split = _op(
        "expand",
        _op("unsqueeze", tensor, statics=(2,)),
        statics=((batch, kv_heads, heads // kv_heads, count, features),),
    )
    return reshape(split, (batch, heads, count, features))


def _sum_shared_heads(tensor: Tensor, like: Tensor) -> Tensor:
    """Sum over the heads of the query that share one head of `like`."""
    batch, heads, count, features = tensor.meta.shape
    kv_heads = like.meta.shape[1]
    if kv_heads == heads:
        return tensor
    return _op("sum", reshape(tensor, (batch, kv_heads, heads // kv_heads, count, features)), statics=(2, False, None))


def _probabilities(query: Tensor, key: Tensor, mask: Tensor | None, scale: float, is_causal: bool) -> Tensor:
    """Return softmax(scale * query keyᵀ + mask). Rows in which everything is masked are 0."""
    scores = _op("matmul_batched", _op("mul", query, scale), _transpose(key))
    negative_infinity = -float("inf")
    if is_causal:
        rows, keys = scores.meta.shape[-2:]
        device = scores.meta.device
        is_visible = _op("ge", arange((rows, 1), device), arange((keys,), device))
        scores = _op("where", is_visible, scores, negative_infinity)
    if mask is None:
        return _op("softmax", scores, statics=(-1,))
    if mask.meta.dtype is dtypes.bool_:
        scores = _op("where", mask, scores, negative_infinity)
    else:
        scores = _op("add", scores, _to_compute_dtype(mask))
    is_masked_row = _op("all", _op("eq", scores, negative_infinity), statics=((-1,), True))
    return _op("where", is_masked_row, 0.0, _op("softmax", _op("where", is_masked_row, 0.0, scores), statics=(-1,)))


def _dropout_numbers(values: _Values) -> _DropoutNumbers:
    return values["p"], values["rescale"], values["seed"], values["offset"]


def _dropout(numbers: _DropoutNumbers, dropping: bool) -> Callable[[Tensor], Tensor]:
    if not dropping:
        return lambda tensor: tensor
    return lambda tensor: _op("dropout_draw", tensor, *numbers)


def attention_by_ops(operands: AttentionOperands, statics: tuple[bool, bool]) -> Tensor:
    """Compute `attention` by ops that store the scores.

    The result is differentiable any number of times, also with respect to the mask. Operands may be empty, and have any
    number of features.
    """
    query, key, value, mask, scale, p, rescale, seed, offset = operands
    heads = query.meta.shape[1]
    probabilities = _probabilities(
        _to_compute_dtype(query),
        _repeat_heads(_to_compute_dtype(key), heads),
        mask,
        scale,
        statics[0],
    )
    dropped = _dropout((p, rescale, seed, offset), statics[1])(probabilities)
    return _to_dtype_of(_op("matmul_batched", dropped, _repeat_heads(_to_compute_dtype(value), heads)), query)


def _gradients_by_ops(node: Node, values: _Values, name: str) -> dict[str, Tensor]:
    """Compute all three gradients by ops, so that they can be differentiated again."""
    is_causal, dropping = node.statics
    operands = [values["query"], values["key"], values["value"]]
    query, key, value = (_to_compute_dtype(t) for t in operands)
    grad = _to_compute_dtype(values["grad_result"])
    scale, heads = values["scale"], query.meta.shape[1]
    repeated_key = _repeat_heads(key, heads)
    probabilities = _probabilities(query, repeated_key, values.get("mask"), scale, is_causal)
    dropout = _dropout(_dropout_numbers(values), dropping)
    grad_probabilities = dropout(_op("matmul_batched", grad, _transpose(_repeat_heads(value, heads))))
    row_sums = _op("sum", _op("mul", probabilities, grad_probabilities), statics=((-1,), True, None))
    grad_scores = _op("mul", _op("mul", probabilities, _op("sub", grad_probabilities, row_sums)), scale)
    gradients = {
        "query": _op("matmul_batched", grad_scores, repeated_key),
        "key": _sum_shared_heads(_op("matmul_batched", _transpose(grad_scores), query), key),
        "value": _sum_shared_heads(_op("matmul_batched", _transpose(dropout(probabilities)), grad), value),
    }
    return {n: _to_dtype_of(gradients[n], t) for n, t in zip(gradients, operands, strict=True)}
