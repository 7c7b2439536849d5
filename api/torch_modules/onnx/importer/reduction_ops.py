"""Operators that reduce, sort or accumulate along dimensions, and matrix products."""

from __future__ import annotations

from collections.abc import Callable

import weftgrad as wg

from ...runtime.tensor import Tensor
from .nodes import Node, NodeFunction

__all__ = ["REDUCTION_OPS"]


def _reduce(function: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> NodeFunction:
    """Return the function of a reduction, whose axes are an attribute or an input."""

    def compute(node: Node) -> Tensor:
        x = node[0]
        axes = node.integers(1, "axes", None)
        keepdim = bool(node.attribute("keepdims", 1))
        if not axes:
            if axes is not None and node.attribute("noop_with_empty_axes", 0):
                return x
            axes = list(range(x.ndim))
        if not axes:
            return function(x.reshape(1), (0,), False)
        return function(x, tuple(axes), keepdim)

    return compute


def _prod(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return wg.prod(x, dims, keepdim).to(x.dtype)


def _sum(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return x.sum(dims, keepdim).to(x.dtype)


def _extreme(function: Callable[..., Tensor]) -> Callable[[Tensor, tuple[int, ...], bool], Tensor]:
    return lambda x, dims, keepdim: function(x, dims, keepdim)


def _arg(function: Callable[..., Tensor]) -> NodeFunction:
    def compute(node: Node) -> Tensor:
        x, axis = node[0], node.attribute("axis", 0)
        keepdim = bool(node.attribute("keepdims", 1))
        if not node.attribute("select_last_index", 0):
            return function(x, axis, keepdim)
        size = x.shape[axis]
        return size - 1 - function(x.flip(axis % x.ndim), axis, keepdim)

    return compute


def _top_k(node: Node) -> list[Tensor | None]:
    count = node.integers(1, "k")[0]
    values, indices = node[0].topk(
        count, node.attribute("axis", -1), bool(node.attribute("largest", 1)), bool(node.attribute("sorted", 1))
    )
    return [values, indices]


def _cumsum(node: Node) -> Tensor:
    x = node[0]
    axis = node.integers(1)[0] % x.ndim
    reverse, exclusive = node.attribute("reverse", 0), node.attribute("exclusive", 0)
    if reverse:
        x = x.flip(axis)
    total = x.cumsum(axis).to(x.dtype)
    if exclusive:
        total = total - x
    return total.flip(axis) if reverse else total


def _gemm(node: Node) -> Tensor:
    a, b = node[0], node[1]
    a = a.t() if node.attribute("transA", 0) else a
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if node.attribute("transB", 0) and alpha == 1 and (not node.has(2) or (beta == 1 and node[2].ndim == 1)):
        return wg.nn.functional.linear(a, b, node.get(2))
    b = b.t() if node.attribute("transB", 0) else b
    product = a @ b if alpha == 1 else (a @ b) * alpha
    if not node.has(2):
        return product
    return product + (node[2] if beta == 1 else node[2] * beta)


def _einsum(node: Node) -> Tensor:
    return wg.einsum(node.attribute("equation"), *node.tensors())


def _lp(order: int) -> Callable[[Tensor, tuple[int, ...], bool], Tensor]:
    return lambda x, dims, keepdim: wg.linalg.vector_norm(x, order, dims, keepdim)


REDUCTION_OPS: dict[str, NodeFunction] = {
    "ArgMax": _arg(wg.argmax), "ArgMin": _arg(wg.argmin), "CumSum": _cumsum, "Einsum": _einsum, "Gemm": _gemm,
    "MatMul": lambda node: node[0] @ node[1], "ReduceL1": _reduce(lambda x, d, k: _sum(x.abs(), d, k)),
    "ReduceL2": _reduce(_lp(2)), "ReduceLogSum": _reduce(lambda x, d, k: x.sum(d, k).log()),
    "ReduceLogSumExp": _reduce(lambda x, d, k: x.logsumexp(d, k)), "ReduceMax": _reduce(_extreme(wg.amax)),
    "ReduceMean": _reduce(lambda x, d, k: x.mean(d, k)), "ReduceMin": _reduce(_extreme(wg.amin)),
    "ReduceProd": _reduce(_prod), "ReduceSum": _reduce(_sum),
    "ReduceSumSquare": _reduce(lambda x, d, k: _sum(x * x, d, k)), "TopK": _top_k,
}  # fmt: skip
"""Functions by operator."""
