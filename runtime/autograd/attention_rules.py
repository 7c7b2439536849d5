"""Gradients of attention: by kernels that make the scores again, and by ops, where they are to be differentiated.

With P the probabilities, D what dropout multiplies them with, and g the result's gradient (Dao et al.,
"FlashAttention", 2022, appendix B): the value's gradient is (D P)ᵀ g; dP = D (g valueᵀ); dS = P (dP - rowsum(P dP));
the query's is scale dS key, the key's scale dSᵀ query. The row sums are those of g times the result, so no row is
needed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..context import current_stream
from ..device import Device, meta
from ..dispatch import call, empty, is_recorded
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node

__all__ = ["composed", "rules"]

_OPERANDS = ("query", "key", "value", "mask", "scale", "p", "rescale", "seed", "offset")


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of `attention`. Its mask has none: one that wants a gradient goes through ops."""
    read = ("grad_result", "result", "logsumexp", *_OPERANDS)
    return {name: Rule(function=_rule(name), operands=read) for name in ("query", "key", "value")}


def _rule(name: str) -> Callable[..., Tensor]:
    def gradient(node: Node, values: dict[str, Any], position: int) -> Tensor:
        known: dict[str, Tensor] = values.setdefault("attention", {})
        if name not in known:
            by_ops = is_recorded(*(values.get(n) for n in ("query", "key", "value", "grad_result")))
            known.update((_slopes if by_ops else _launched)(node, values, name))
        return known[name]

    return gradient


def _launched(node: Node, values: dict[str, Any], name: str) -> dict[str, Tensor]:
    """The gradient of one operand, or of key and value together, by kernels."""
    if "delta" not in values:
        values["delta"] = call(registry["attention_delta"], (values["result"], values["grad_result"]))
    tensors = (*(values.get(n) for n in _OPERANDS[:4]), values["grad_result"], values["logsumexp"], values["delta"])
    operands = (*tensors, *(values[n] for n in _OPERANDS[4:]))
    if name == "query":
        return {name: call(registry["attention_query"], operands, node.statics)}
    key, value = call(registry["attention_key_value"], operands, node.statics)
    return {"key": key, "value": value}


def _op(name: str, *operands: Any, statics: tuple[Any, ...] = ()) -> Tensor:
    return call(registry[name], operands, statics)  # type: ignore[no-any-return]


def _turned(tensor: Tensor) -> Tensor:
    return _op("transpose", tensor, statics=(-2, -1))


def _wide(tensor: Tensor) -> Tensor:
    """In the dtype that kernels compute in."""
    return _op("copy", tensor, statics=(dtypes.float32,)) if tensor.meta.dtype.itemsize == 2 else tensor


def _narrow(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor if tensor.meta.dtype is like.meta.dtype else _op("copy", tensor, statics=(like.meta.dtype,))


def _shared(tensor: Tensor, heads: int) -> Tensor:
    """A key or a value with each of its heads as often as heads of the query share it."""
    batch, own, count, width = tensor.meta.shape
    if own == heads:
        return tensor
    split = _op("expand", _op("unsqueeze", tensor, statics=(2,)), statics=((batch, own, heads // own, count, width),))
    return reshape(split, (batch, heads, count, width))


def _gathered(tensor: Tensor, like: Tensor) -> Tensor:
    """The sum over the heads of the query that share one of `like`."""
    batch, heads, count, width = tensor.meta.shape
    own = like.meta.shape[1]
    if own == heads:
        return tensor
    return _op("sum", reshape(tensor, (batch, own, heads // own, count, width)), statics=(2, False, None))


def _positions(count: int, device: Device) -> Tensor:
    made = empty(meta(dtypes.int64, (count,), None, device))
    if count:
        device.driver.write(made.storage, 0, np.arange(count), current_stream(device))
    return made


def _probabilities(query: Tensor, key: Tensor, mask: Tensor | None, scale: float, is_causal: bool) -> Tensor:
    """softmax(scale * query keyᵀ + mask); rows that attend to nothing are 0."""
    scores = _op("matmul_batched", _op("mul", query, scale), _turned(key))
    minus = -float("inf")
    if is_causal:
        rows, keys = scores.meta.shape[-2:]
        place = scores.meta.device
        below = _op("ge", reshape(_positions(rows, place), (rows, 1)), _positions(keys, place))
        scores = _op("where", below, scores, minus)
    if mask is None:
        return _op("softmax", scores, statics=(-1,))
    if mask.meta.dtype is dtypes.bool_:
        scores = _op("where", mask, scores, minus)
    else:
        scores = _op("add", scores, _wide(mask))
    nothing = _op("all", _op("eq", scores, minus), statics=((-1,), True))
    return _op("where", nothing, 0.0, _op("softmax", _op("where", nothing, 0.0, scores), statics=(-1,)))


def _dropped(values: Mapping[str, Any], dropping: bool) -> Callable[[Tensor], Tensor]:
    if not dropping:
        return lambda tensor: tensor
    numbers = [values[n] for n in ("p", "rescale", "seed", "offset")]
    return lambda tensor: _op("dropout_draw", tensor, *numbers)


def composed(operands: Sequence[Any], statics: tuple[bool, bool]) -> Tensor:
    """What `attention` gives for the same operands, by ops that store the scores: differentiable any number of times,
    and in the mask. Empty operands and any number of features are fine."""
    values = dict(zip(_OPERANDS, operands, strict=True))
    query, key, value = values["query"], values["key"], values["value"]
    heads = query.meta.shape[1]
    chances = _probabilities(_wide(query), _shared(_wide(key), heads), values["mask"], values["scale"], statics[0])
    kept = _dropped(values, statics[1])(chances)
    return _narrow(_op("matmul_batched", kept, _shared(_wide(value), heads)), query)


def _slopes(node: Node, values: dict[str, Any], name: str) -> dict[str, Tensor]:
    """All three gradients by ops, which record what they do."""
    is_causal, dropping = node.statics
    given = [values[n] for n in ("query", "key", "value")]
    query, key, value = (_wide(t) for t in given)
    grad = _wide(values["grad_result"])
    scale, heads = values["scale"], query.meta.shape[1]
    many = _shared(key, heads)
    chances = _probabilities(query, many, values.get("mask"), scale, is_causal)
    drop = _dropped(values, dropping)
    change = drop(_op("matmul_batched", grad, _turned(_shared(value, heads))))
    rows = _op("sum", _op("mul", chances, change), statics=((-1,), True, None))
    slope = _op("mul", _op("mul", chances, _op("sub", change, rows)), scale)
    found = {
        "query": _op("matmul_batched", slope, many),
        "key": _gathered(_op("matmul_batched", _turned(slope), query), key),
        "value": _gathered(_op("matmul_batched", _turned(drop(chances)), grad), value),
    }
    return {n: _narrow(found[n], t) for n, t in zip(found, given, strict=True)}
