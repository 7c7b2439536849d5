"""Gradients of samples of images: by kernels, and by ops, where they are to be differentiated.

What is read is a sum over neighbours, each gathered, so the gradient with respect to the image is a scatter that adds
in a fixed order; that with respect to the places comes from the weights (Jaderberg et al., "Spatial Transformer
Networks", 2015, sections 3.2 and 3.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from .. import dtypes
from ..dispatch import call, is_recorded
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import contiguous, reshape
from .engine import run
from .node import Node

__all__ = ["composed", "rules"]

_KEYS = -0.75  # the cubic kernel's slope (Keys 1981)

# An element that a sample reads along one dimension: its place (int64), and its weight.
_Tap = tuple[Tensor, Tensor | None]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of `sample_grid`."""
    read = ("grad", "input", "grid")
    return {name: Rule(function=_rule(name), operands=read) for name in read[1:]}


def _rule(name: str) -> Callable[..., Tensor]:
    def gradient(node: Node, values: dict[str, Any], position: int) -> Tensor:
        grad, image, grid = (values[n] for n in ("grad", "input", "grid"))
        if is_recorded(grad, image, grid):
            return _by_ops(node.statics, values)[name]
        if name == "grid" and node.statics[0] == "nearest":
            return _op("full_like_as", grid, 0.0, statics=(None,))
        grad = contiguous(grad)
        if name == "grid":
            return _op("sample_grid_places", grad, image, grid, statics=node.statics)
        return _op("sample_grid_input", grad, grid, statics=(image.meta.shape, *node.statics))

    return gradient


def _by_ops(statics: tuple[Any, ...], values: dict[str, Any]) -> dict[str, Tensor]:
    """The gradients of those operands that want one, recorded: the sample is taken again by ops."""
    known: dict[str, Tensor] | None = values.get("sampled")
    if known is None:
        wanted = {n: values[n] for n in ("input", "grid") if values[n].needs}
        result = composed(values["input"], values["grid"], *statics)
        found = run([result], [values["grad"]], retain=True, create=True, inputs=list(wanted.values()))
        known = values["sampled"] = {}
        for (name, operand), grad in zip(wanted.items(), found, strict=True):
            known[name] = _op("full_like_as", operand, 0.0, statics=(None,)) if grad is None else grad
    return known


def _op(name: str, *operands: Any, statics: tuple[Any, ...] = ()) -> Tensor:
    return call(registry[name], operands, statics)  # type: ignore[no-any-return]


def composed(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """What `sample_grid` gives for the same operands, by ops: differentiable any number of times, and of any size."""
    own = input.meta.dtype
    if own.itemsize == 2:
        input, grid = (_op("copy", t, statics=(dtypes.float32,)) for t in (input, grid))
    batch, channels, *spatial = input.meta.shape
    places = grid.meta.shape[1:-1]
    flat = reshape(input, (batch, channels, prod(spatial)))
    axes = []
    for number, size in enumerate(reversed(spatial)):  # x, the first number, is for the last dimension
        at = reshape(_op("select", grid, statics=(-1, number)), (batch, 1, prod(places)))
        axes.append(_taps(at, size, prod(spatial), mode, padding, align))
    total: Tensor | None = None
    for several in itertools.product(*axes):
        value, weight = _read(flat, several, tuple(reversed(spatial)))
        if total is None:
            total = value if weight is None else _op("mul", value, weight)
        else:
            total = _op("addcmul", total, value, 1.0 if weight is None else weight, 1)
    assert total is not None
    out = reshape(total, (batch, channels, *places))
    return out if own is out.meta.dtype else _op("copy", out, statics=(own,))


def _read(flat: Tensor, taps: Sequence[_Tap], sizes: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """The elements at one combination of taps, 0 where one of these lies outside; and their weights."""
    place, weight = taps[0]
    stride = 1
    for (own, scale), before in zip(taps[1:], sizes, strict=False):
        stride *= before
        place = _op("linear_index", own, place, stride)
        weight = scale if weight is None or scale is None else _op("mul", weight, scale)
    wide = _op("expand", place, statics=((*flat.meta.shape[:2], place.meta.shape[-1]),))
    return _op("gather", flat, wide, statics=(2, False)), weight


def _taps(at: Tensor, size: int, elements: int, mode: str, padding: str, align: bool) -> list[_Tap]:
    """What samples at `at` (from -1 to 1) read along a dimension of `size`, of an image of so many elements."""
    # ((at + 1) * size - 1) / 2, or (at + 1) * (size - 1) / 2
    x = _op("grid_place", at, (size - 1) / 2 if align else size / 2, 0.0 if align else 0.5)
    far = -float(1 << elements.bit_length())  # so far outside that whatever is added, it is no place
    found: list[_Tap] = []
    if mode == "bicubic":
        below = _op("floor", x)
        t = _op("sub", x, below)
        weights = [_far(_op("add", t, 1.0)), _near(t), _near(_op("sub", 1.0, t)), _far(_op("sub", 2.0, t))]
        for k, weight in enumerate(weights, -1):
            whole = _op("round", _padded(_op("add", below, float(k)), size, padding, align))
            found.append((_op("grid_tap", whole, 0.0, float(size), far if padding == "zeros" else 0.0), weight))
        return found
    x = _padded(x, size, padding, align)
    if mode == "nearest":
        whole = _op("round", x)
        place = _op("grid_tap", whole, 0.0, float(size), far if padding == "zeros" else 0.0)
        # The places have a gradient, of zeros.
        return [(place, _op("add", _op("mul", _op("sign", x), 0.0), 1.0) if at.needs else None)]
    above = _op("sub", x, _op("floor", x))
    for k, weight in enumerate((_op("sub", 1.0, above), above)):
        # At the border the further neighbour, which lies outside, has the weight 0.
        found.append((_op("grid_tap", x, float(k), float(size), far), weight))
    return found


def _near(t: Tensor) -> Tensor:
    """Keys' kernel at distances up to 1."""
    return _op("add", _op("mul", _op("mul", _op("sub", _op("mul", t, _KEYS + 2), _KEYS + 3), t), t), 1.0)


def _far(t: Tensor) -> Tensor:
    """Keys' kernel at distances from 1 to 2."""
    inner = _op("add", _op("mul", _op("sub", _op("mul", t, _KEYS), 5 * _KEYS), t), 8 * _KEYS)
    return _op("sub", _op("mul", inner, t), 4 * _KEYS)


def _padded(x: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Places outside moved to where their values come from."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if align else (-0.5, float(size))
        if span == 0:
            return _op("mul", x, 0.0)
        away = _op("abs", _op("sub", x, low))
        turns = _op("floor", _op("true_divide", away, span))
        rest = _op("sub", away, _op("mul", turns, span))
        even = _op("eq", _op("remainder", turns, 2.0), 0.0)
        x = _op("add", _op("where", even, rest, _op("sub", span, rest)), low)
    last = float(size - 1)
    return _op("where", _op("gt", x, 0.0), _op("where", _op("lt", x, last), x, last), 0.0)
