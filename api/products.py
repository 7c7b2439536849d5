"""Products of vectors, matrices and batches of them."""

from __future__ import annotations

from math import prod
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .runtime import views
from .runtime.autocast import alike
from .runtime.autograd.einsum_rules import contraction
from .runtime.context import state
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, NotSupported, ShapeError
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "addmm",
    "addmv",
    "baddbmm",
    "inner",
    "linear",
    "matmul",
    "trace",
]


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product by NumPy's rules: vectors, matrices, and batches of matrices whose leading dimensions broadcast."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise ArgumentError("matmul: takes two tensors")
    a, b = input.meta.ndim, other.meta.ndim
    if a == 0 or b == 0:
        raise ShapeError("matmul: both tensors need at least one dimension; use * for numbers")
    if a == 2 and b == 2:
        found = ops.mm(input, other)
    elif a == 1:
        found = _inner_product(input, other) if b == 1 else ops.vm(input, other)
    elif b == 1:
        found = ops.bmv(input, other)
    else:
        found = ops.matmul_batched(input, other)
    return found if out is None else out.copy_(found)  # type: ignore[attr-defined,no-any-return]


def _inner_product(input: Tensor, other: Tensor) -> Tensor:
    """`dot`; under autocast a product like the others, which `dot` called by its name is not."""
    if state().autocast is None:
        return ops.dot(input, other)
    return call(contraction("k,k->"), (input, other))  # type: ignore[no-any-return]


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    return _plus_product(input, ops.mm(mat1, mat2), beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return _plus_product(input, ops.mv(mat, vec), beta, alpha)


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2)."""
    return _plus_product(input, ops.bmm(batch1, batch2), beta, alpha)


def _plus_product(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    input = alike(input, product)
    if beta == 0:  # NaN in input does not count then, as in BLAS
        return product if alpha == 1 else ops.mul(product, alpha)
    base = input if beta == 1 else ops.mul(input, beta)
    return ops.add(base, product if alpha == 1 else ops.mul(product, alpha))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    only_tensors("linear", input, weight)
    if weight.meta.ndim == 1:
        found = matmul(input, weight)
    elif input.meta.ndim == 2:
        found = ops.linear_product(input, weight)
    else:  # one matrix product of all rows
        shape = input.meta.shape
        if not shape or shape[-1] != weight.meta.shape[-1]:
            raise ShapeError(
                f"linear: input {list(shape)} and weight {list(weight.meta.shape)} must agree in their last dimension"
            )
        flat = views.reshape(input, (-1, shape[-1])) if input.meta.numel else input
        found = ops.linear_product(flat, weight)
        if input.meta.numel:
            found = views.reshape(found, (*shape[:-1], weight.meta.shape[0]))
    return found if bias is None else ops.add(found, alike(bias, found))


def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sums of products over the last dimension of both; a 0-d tensor multiplies everything."""
    only_tensors("inner", input, other)
    found = _inner(input, other)
    return found if out is None else store(found, out, "inner")


def _inner(input: Tensor, other: Tensor) -> Tensor:
    if not input.meta.ndim or not other.meta.ndim:
        return ops.mul(input, other)
    if input.meta.shape[-1] != other.meta.shape[-1]:
        raise ShapeError(
            f"inner: shapes {list(input.meta.shape)} and {list(other.meta.shape)} must agree in their last dimension"
        )
    shape = (*input.meta.shape[:-1], *other.meta.shape[:-1])
    a, b = (views.reshape(x, (prod(x.meta.shape[:-1]), x.meta.shape[-1])) for x in (input, other))
    return views.reshape(ops.linear_product(a, b), shape)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal; of integers in int64. Raises `ShapeError` for what is no matrix."""
    only_tensors("trace", input)
    if input.meta.ndim != 2:
        raise ShapeError(f"trace: takes a matrix, not shape {list(input.meta.shape)}")
    if input.meta.dtype.kind == "b":
        raise NotSupported("trace: takes numbers, not bool; convert with .to()")
    return ops.sum(ops.diagonal(input))
