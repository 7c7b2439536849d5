"""Products of matrices and vectors that are made of others: chains, Kronecker and vector products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ._checks import only_tensors
from ._generated import ops
from .contracting import einsum
from .joining import cat
from .products import matmul
from .runtime import layout, views
from .runtime.dispatch import call
from .runtime.errors import ShapeError
from .runtime.records import registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["bilinear", "chain_matmul", "cross", "kron", "vdot"]


def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product: every element of `input` times all of `other`, in blocks. Dimensions are aligned at the
    last."""
    only_tensors("kron", input, other)
    ndim = max(input.meta.ndim, other.meta.ndim)
    a, b = ((1,) * (ndim - x.meta.ndim) + x.meta.shape for x in (input, other))
    apart = views.reshape(input, tuple(n for size in a for n in (size, 1)))
    beside = views.reshape(other, tuple(n for size in b for n in (1, size)))
    found = views.reshape(ops.mul(apart, beside), tuple(n * m for n, m in zip(a, b, strict=True)))
    return found if out is None else store(found, out, "kron")


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out[…, o] = input1 · weight[o] · input2 + bias[o], of (…, I), (…, J), (O, I, J) and (O).

    Raises `ShapeError` for other shapes.
    """
    only_tensors("bilinear", input1, input2, weight)
    lead = input1.meta.shape[:-1]
    if (
        weight.meta.ndim != 3
        or not input1.meta.ndim
        or input2.meta.shape[:-1] != lead
        or (input1.meta.shape[-1], *input2.meta.shape[-1:]) != weight.meta.shape[1:]
    ):
        raise ShapeError(
            f"bilinear: takes (*, I), (*, J) and a weight (O, I, J), not {list(input1.meta.shape)}, "
            f"{list(input2.meta.shape)} and {list(weight.meta.shape)}"
        )
    found = einsum("...i,oij,...j->...o", input1, weight, input2)
    return found if bias is None else ops.add(found, bias)


def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of the products of two vectors; as `dot`, since numbers here are real."""
    return ops.dot(input, other, out=out)


def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The vector product along a dimension of size 3: the first that has it, if `dim` is not given. Others broadcast.

    Raises `ShapeError` where there is no such dimension.
    """
    only_tensors("cross", input, other)
    if input.meta.ndim != other.meta.ndim:
        raise ShapeError(
            f"cross: as many dimensions in both, not shapes {list(input.meta.shape)} and {list(other.meta.shape)}"
        )
    if dim is None:
        dim = next((d for d, n in enumerate(input.meta.shape) if n == 3), None)
        if dim is None:
            raise ShapeError(f"cross: no dimension of {list(input.meta.shape)} has size 3")
    at = layout.normalize_dim(dim, input.meta.ndim, "cross")
    if not input.meta.ndim or input.meta.shape[at] != 3 or other.meta.shape[at] != 3:
        raise ShapeError(
            f"cross: dimension {dim} must have size 3 in both, not {list(input.meta.shape)} and "
            f"{list(other.meta.shape)}"
        )
    a, b = (_around(x, at) for x in (input, other))
    found = ops.addcmul(ops.mul(_from(a, at, 1), _from(b, at, 2)), _from(a, at, 2), _from(b, at, 1), value=-1)
    return found if out is None else store(found, out, "cross")


def _around(x: Tensor, dim: int) -> Tensor:
    return cat([x, call(registry["narrow"], (x,), (dim, 0, 2))], dim)


def _from(x: Tensor, dim: int, start: int) -> Tensor:
    return call(registry["narrow"], (x,), (dim, start, 3))  # type: ignore[no-any-return]


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications."""
    given = list(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else list(matrices)
    only_tensors("chain_matmul", *given)
    if not given:
        raise ShapeError("chain_matmul: takes at least one matrix")
    for i, x in enumerate(given):
        if x.meta.ndim != 2:
            raise ShapeError(f"chain_matmul: operand {i} must be a matrix, it has shape {list(x.meta.shape)}")
    found = given[0] if len(given) == 1 else _chained("chain_matmul", given)
    return found if out is None else store(found, out, "chain_matmul")


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications; the first may be a row,
    the last a column, each as a vector. This is `torch.linalg.multi_dot`.

    Raises `ShapeError` for fewer operands, other dimensions, and sizes that do not meet.
    """
    given = list(tensors)
    only_tensors("multi_dot", *given)
    if len(given) < 2:
        raise ShapeError(f"multi_dot: takes two operands or more, not {len(given)}")
    for i, x in enumerate(given):
        if x.meta.ndim != 2 and not (x.meta.ndim == 1 and i in (0, len(given) - 1)):
            raise ShapeError(
                f"multi_dot: operands are matrices, and the first and the last may be vectors; operand {i} has shape "
                f"{list(x.meta.shape)}"
            )
    shape = [*given[0].meta.shape[:-1], *given[-1].meta.shape[1:]]
    if given[0].meta.ndim == 1:
        given[0] = views.reshape(given[0], (1, -1))
    if given[-1].meta.ndim == 1:
        given[-1] = views.reshape(given[-1], (-1, 1))
    found = views.reshape(_chained("multi_dot", given), tuple(shape))
    return found if out is None else store(found, out, "multi_dot")


def _chained(where: str, given: list[Tensor]) -> Tensor:
    """The product by the parenthesisation of least cost (dynamic programming: Cormen et al., section 14.2)."""
    for i, (a, b) in enumerate(pairwise(given)):
        if a.meta.shape[1] != b.meta.shape[0]:
            raise ShapeError(
                f"{where}: operands {i} and {i + 1} have shapes {list(a.meta.shape)} and {list(b.meta.shape)}, which "
                f"do not meet"
            )
    sizes = [given[0].meta.shape[0], *(x.meta.shape[1] for x in given)]
    count = len(given)
    cost = [[0] * count for _ in range(count)]
    cut = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], cut[i][j] = min(options)

    def product(i: int, j: int) -> Tensor:
        return given[i] if i == j else matmul(product(i, cut[i][j]), product(cut[i][j] + 1, j))

    return product(0, count - 1)


METHODS = {name: globals()[name] for name in ("cross", "kron", "vdot")}
