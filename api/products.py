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
from .runtime.dispatch import call, is_recorded
from .runtime.errors import ArgumentError, NotSupported, ShapeError
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "_addmm_activation",
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
        return ops.mm(input, other, out=out)
    elif a == 1:
        found = _inner_product(input, other) if b == 1 else ops.vm(input, other)
    elif b == 1:
        found = ops.bmv(input, other)
    else:
        found = ops.matmul_batched(input, other)
    return found if out is None else store(found, out, "matmul")


def _inner_product(input: Tensor, other: Tensor) -> Tensor:
    """`dot`; under autocast a product like the others, which `dot` called by its name is not."""
    if state().autocast is None:
        return ops.dot(input, other)
    return call(contraction("k,k->"), (input, other))  # type: ignore[no-any-return]


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    if fused(beta, alpha, input, mat1, mat2, 2, 2):
        found = ops.addmm_product(input, mat1, mat2, beta, alpha)
    else:
        found = _plus_product(input, ops.mm(mat1, mat2), beta, alpha)
    return found if out is None else store(found, out, "addmm")


def _addmm_activation(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Tensor:
    """relu (or with `use_gelu` gelu, by the error function) of beta * input + alpha * (mat1 @ mat2).

    One kernel where no gradient is recorded; else the activation is an op of its own.
    """
    only_tensors("_addmm_activation", input, mat1, mat2)
    if not is_recorded(input, mat1, mat2) and fused(beta, alpha, input, mat1, mat2, 2, 2):
        return (ops.addmm_gelu if use_gelu else ops.addmm_relu)(input, mat1, mat2, beta, alpha)
    found = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return ops.gelu_erf(found) if use_gelu else ops.relu(found)


def fused(beta: Any, alpha: Any, input: Any, a: Any, b: Any, first: int, second: int) -> bool:
    """Whether beta * input + alpha * (a @ b), of `a` and `b` of so many dimensions, is one kernel: of numbers and of
    floating tensors that `_beside` allows. Of beta = 0 it is not: NaN in input does not count then, as in BLAS."""
    if beta == 0 or type(beta) not in (int, float) or type(alpha) not in (int, float):
        return False
    if not (isinstance(input, Tensor) and isinstance(a, Tensor) and isinstance(b, Tensor)):
        return False
    one, two = a.meta.shape, b.meta.shape
    if len(one) != first or len(two) != second or one[:-2] != two[:-2] or one[-1] != two[first - 2]:
        return False
    return _beside(input, a, b, one[:-1] + two[first - 1 :])


def _beside(input: Tensor, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether `input` can be added to a product of `a` and `b` where that is stored: a tensor of their dtype, a
    floating one, that broadcasts to `shape`, that of the product."""
    own, dtype = input.meta, a.meta.dtype
    if own.dtype is not dtype or b.meta.dtype is not dtype or dtype.kind != "f" or own.ndim > len(shape):
        return False
    return all(n in (1, m) for n, m in zip(own.shape[::-1], shape[::-1], strict=False))


def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    if fused(beta, alpha, input, mat, vec, 2, 1):
        found = ops.addmv_product(input, mat, vec, beta, alpha)
    else:
        found = _plus_product(input, ops.mv(mat, vec), beta, alpha)
    return found if out is None else store(found, out, "addmv")


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor | None = None
) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2)."""
    if fused(beta, alpha, input, batch1, batch2, 3, 3):
        found = ops.baddbmm_product(input, batch1, batch2, beta, alpha)
    else:
        found = _plus_product(input, ops.bmm(batch1, batch2), beta, alpha)
    return found if out is None else store(found, out, "baddbmm")


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
        found, bias = _linear(input, weight, bias)
    else:  # one matrix product of all rows
        shape = input.meta.shape
        if not shape or shape[-1] != weight.meta.shape[-1]:
            raise ShapeError(
                f"linear: input {list(shape)} and weight {list(weight.meta.shape)} must agree in their last dimension"
            )
        flat = views.reshape(input, (-1, shape[-1])) if input.meta.numel else input
        found, bias = _linear(flat, weight, bias)
        if input.meta.numel:
            found = views.reshape(found, (*shape[:-1], weight.meta.shape[0]))
    return found if bias is None else ops.add(found, alike(bias, found))


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The product of `rows` with the transpose of `weight`, and what is still to be added to it."""
    if isinstance(bias, Tensor) and _beside(bias, rows, weight, weight.meta.shape[:1]):
        return ops.linear_bias(rows, weight, bias), None
    return ops.linear_product(rows, weight), bias


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
