"""Matrix and vector products composed of other ops: matrix chains, Kronecker, bilinear and cross products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .._generated import ops
from ..arguments.out import copy_to_out
from ..runtime import layout, views
from ..runtime.dispatch import call
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors
from .contractions import einsum
from .products import matmul

__all__ = ["bilinear", "chain_matmul", "cross", "kron", "vdot"]


def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Kronecker product: each element of `input` is replaced by its product with all of `other`.

    Shapes are aligned at the last dimension; size d of the result is the product of both sizes d.

    Args:
        input: Tensor of any dtype.
        other: Tensor of any dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the promoted dtype.

    Example:
        >>> wg.kron(wg.tensor([1, 10]), wg.tensor([1, 2]))
        tensor([ 1,  2, 10, 20])
    """
    only_tensors("kron", input, other)
    ndim = max(input.meta.ndim, other.meta.ndim)
    a, b = ((1,) * (ndim - x.meta.ndim) + x.meta.shape for x in (input, other))
    a_blocks = views.reshape(input, tuple(n for size in a for n in (size, 1)))
    b_blocks = views.reshape(other, tuple(n for size in b for n in (1, size)))
    product = views.reshape(ops.mul(a_blocks, b_blocks), tuple(n * m for n, m in zip(a, b, strict=True)))
    return product if out is None else copy_to_out(product, out, "kron")


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `out[..., o] = input1 @ weight[o] @ input2 + bias[o]`.

    Args:
        input1: `(..., I)`.
        input2: `(..., J)`, with the same leading dimensions.
        weight: `(O, I, J)`.
        bias: `(O,)` or None.

    Returns:
        `(..., O)`.

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> wg.bilinear(wg.tensor([1.0, 2.0]), wg.tensor([3.0]), wg.tensor([[[1.0], [10.0]]]))
        tensor([63.])
    """
    only_tensors("bilinear", input1, input2, weight)
    batch_shape = input1.meta.shape[:-1]
    if (
        weight.meta.ndim != 3
        or not input1.meta.ndim
        or input2.meta.shape[:-1] != batch_shape
        or (input1.meta.shape[-1], *input2.meta.shape[-1:]) != weight.meta.shape[1:]
    ):
        raise ShapeError(
            f"bilinear: takes (*, I), (*, J) and a weight (O, I, J), not {list(input1.meta.shape)}, "
            f"{list(input2.meta.shape)} and {list(weight.meta.shape)}"
        )
    product = einsum("...i,oij,...j->...o", input1, weight, input2)
    return product if bias is None else ops.add(product, bias)


def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the dot product of two vectors; the same as `dot`, since all dtypes are real.

    Args:
        input: Vector.
        other: Vector of the same size.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `()`.

    Example:
        >>> wg.vdot(wg.tensor([1, 2]), wg.tensor([3, 4]))
        tensor(11)
    """
    return ops.dot(input, other, out=out)


def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the cross product along a dimension of size 3. The other dimensions broadcast.

    Args:
        input: First factor.
        other: Second factor, with as many dimensions.
        dim: The dimension; by default the first one of size 3.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape.

    Raises:
        ShapeError: No such dimension, or different numbers of dimensions.

    Example:
        >>> wg.cross(wg.tensor([1.0, 0.0, 0.0]), wg.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
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
    axis_index = layout.normalize_dim(dim, input.meta.ndim, "cross")
    if not input.meta.ndim or input.meta.shape[axis_index] != 3 or other.meta.shape[axis_index] != 3:
        raise ShapeError(
            f"cross: dimension {dim} must have size 3 in both, not {list(input.meta.shape)} and "
            f"{list(other.meta.shape)}"
        )
    a, b = (_extend_cyclically(x, axis_index) for x in (input, other))
    product = ops.addcmul(
        ops.mul(_narrow_three(a, axis_index, 1), _narrow_three(b, axis_index, 2)),
        _narrow_three(a, axis_index, 2),
        _narrow_three(b, axis_index, 1),
        value=-1,
    )
    return product if out is None else copy_to_out(product, out, "cross")


def _extend_cyclically(x: Tensor, dim: int) -> Tensor:
    return cat([x, call(registry["narrow"], (x,), (dim, 0, 2))], dim)


def _narrow_three(x: Tensor, dim: int, start: int) -> Tensor:
    return call(registry["narrow"], (x,), (dim, start, 3))


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply a chain of matrices, in the order with the fewest scalar multiplications.

    Args:
        *matrices: Matrices whose neighbouring sizes agree.
        out: Tensor to write the result to.

    Returns:
        Matrix.

    Raises:
        ShapeError: There is no matrix, an operand is not a matrix, or neighbouring sizes differ.

    Example:
        >>> wg.chain_matmul(wg.ones(2, 3), wg.ones(3, 4), wg.ones(4, 1)).shape
        weftgrad.Size([2, 1])
    """
    operands = list(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else list(matrices)
    only_tensors("chain_matmul", *operands)
    if not operands:
        raise ShapeError("chain_matmul: takes at least one matrix")
    for i, x in enumerate(operands):
        if x.meta.ndim != 2:
            raise ShapeError(f"chain_matmul: operand {i} must be a matrix, it has shape {list(x.meta.shape)}")
    product = operands[0] if len(operands) == 1 else _multiply_chain("chain_matmul", operands)
    return product if out is None else copy_to_out(product, out, "chain_matmul")


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Multiply two or more matrices, in the order with the fewest scalar multiplications (`torch.linalg.multi_dot`).

    Args:
        tensors: Matrices; the first may be a vector, used as a row, and the last a vector, used as a column.
        out: Tensor to write the result to.

    Returns:
        Matrix; a vector or scalar if the first or last operand is a vector.

    Raises:
        ShapeError: Fewer than two operands, or shapes that do not fit.

    Example:
        >>> wg.linalg.multi_dot([wg.ones(2, 3), wg.ones(3, 4), wg.ones(4)]).shape
        weftgrad.Size([2])
    """
    operands = list(tensors)
    only_tensors("multi_dot", *operands)
    if len(operands) < 2:
        raise ShapeError(f"multi_dot: takes two operands or more, not {len(operands)}")
    for i, x in enumerate(operands):
        if x.meta.ndim != 2 and not (x.meta.ndim == 1 and i in (0, len(operands) - 1)):
            raise ShapeError(
                f"multi_dot: operands are matrices, and the first and the last may be vectors; operand {i} has shape "
                f"{list(x.meta.shape)}"
            )
    shape = [*operands[0].meta.shape[:-1], *operands[-1].meta.shape[1:]]
    if operands[0].meta.ndim == 1:
        operands[0] = views.reshape(operands[0], (1, -1))
    if operands[-1].meta.ndim == 1:
        operands[-1] = views.reshape(operands[-1], (-1, 1))
    product = views.reshape(_multiply_chain("multi_dot", operands), tuple(shape))
    return product if out is None else copy_to_out(product, out, "multi_dot")


def _multiply_chain(where: str, operands: list[Tensor]) -> Tensor:
    """Multiply with the cheapest parenthesisation, found by dynamic programming (Cormen et al., section 14.2)."""
    for i, (a, b) in enumerate(pairwise(operands)):
        if a.meta.shape[1] != b.meta.shape[0]:
            raise ShapeError(
                f"{where}: operands {i} and {i + 1} have shapes {list(a.meta.shape)} and {list(b.meta.shape)}, which "
                f"do not meet"
            )
    sizes = [operands[0].meta.shape[0], *(x.meta.shape[1] for x in operands)]
    count = len(operands)
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], split[i][j] = min(options)

    def product(i: int, j: int) -> Tensor:
        return operands[i] if i == j else matmul(product(i, split[i][j]), product(split[i][j] + 1, j))

    return product(0, count - 1)


METHODS = {name: globals()[name] for name in ("cross", "kron", "vdot")}
