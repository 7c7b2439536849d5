"""Add products to a matrix, and write its diagonal."""

from __future__ import annotations

from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Operand
from ..runtime import dtypes, layout, views
from ..runtime.autocast import match_autocast_dtype
from ..runtime.dispatch import call
from ..runtime.errors import DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from ..tensor_methods.in_place import in_place_method
from .products import fusable_factors

__all__ = ["addbmm", "addr"]


def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: Tensor | float = 1,
    alpha: Tensor | float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * sum over b of batch1[b] @ batch2[b]`.

    It is computed as one matrix product with an inner dimension of B * M. With `beta=0`, NaN in `input` is ignored.

    Args:
        input: Broadcasts to `(N, P)`.
        batch1: `(B, N, M)`.
        batch2: `(B, M, P)`.
        beta: Factor of `input`.
        alpha: Factor of the product.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(N, P)`.

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> wg.addbmm(wg.tensor([[1.0]]), wg.ones(2, 1, 3), wg.ones(2, 3, 1))
        tensor([[7.]])
    """
    only_tensors("addbmm", input, batch1, batch2)
    shape1, shape2 = batch1.meta.shape, batch2.meta.shape
    if len(shape1) != 3 or len(shape2) != 3 or shape1[0] != shape2[0] or shape1[2] != shape2[1]:
        raise ShapeError(f"addbmm: takes (b, n, m) and (b, m, p), not shapes {list(shape1)} and {list(shape2)}")
    left = views.reshape(call(registry["permute"], (batch1,), ((1, 0, 2),)), (shape1[1], shape1[0] * shape1[2]))
    right = views.reshape(batch2, (shape1[0] * shape1[2], shape2[2]))
    factors = fusable_factors(beta, alpha, input, left, right, 2, 2)
    if factors is not None:
        output = ops.addmm_product(input, left, right, factors[0], factors[1])
    else:
        output = _add_scaled(input, ops.mm(left, right), beta, alpha, "addbmm")
    return output if out is None else copy_to_out(output, out, "addbmm")


def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: Tensor | float = 1,
    alpha: Tensor | float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)`.

    With `beta=0`, NaN in `input` is ignored.

    Args:
        input: Broadcasts to `(n, m)`.
        vec1: Vector `(n,)`.
        vec2: Vector `(m,)`.
        beta: Factor of `input`.
        alpha: Factor of the product.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(n, m)`.

    Raises:
        ShapeError: `vec1` or `vec2` is not a vector, or `input` does not broadcast.
        DTypeError: A factor is a float, and the operands are integers.

    Example:
        >>> wg.addr(wg.ones(2, 2), wg.tensor([1.0, 2.0]), wg.tensor([3.0, 4.0]))
        tensor([[4., 5.],
                [7., 9.]])
    """
    only_tensors("addr", input, vec1, vec2)
    if vec1.meta.ndim != 1 or vec2.meta.ndim != 1:
        raise ShapeError(f"addr: takes two vectors, not shapes {list(vec1.meta.shape)} and {list(vec2.meta.shape)}")
    column = call(registry["unsqueeze"], (vec1,), (1,))
    output = _add_scaled(input, ops.mul(column, vec2), beta, alpha, "addr")
    return output if out is None else copy_to_out(output, out, "addr")


def _add_scaled(input: Tensor, product: Tensor, beta: Tensor | float, alpha: Tensor | float, where: str) -> Tensor:
    if layout.broadcast([input.meta.shape, product.meta.shape], where) != product.meta.shape:
        raise ShapeError(
            f"{where}: input of shape {list(input.meta.shape)} does not expand to {list(product.meta.shape)}"
        )
    input = match_autocast_dtype(input, product)
    kind = dtypes.promote(input.meta.dtype, product.meta.dtype).kind
    for name, value in (("beta", beta), ("alpha", alpha)):
        if kind in "iu" and isinstance(value, float):
            raise DTypeError(f"{where}: {name} must not be a floating number for integers, such as {value}")
    if alpha != 1:
        product = ops.mul(product, alpha)
    if beta == 0:
        return product
    return ops.add(input if beta == 1 else ops.mul(input, beta), product)


def fill_diagonal_(self: Tensor, fill_value: Operand, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place.

    Args:
        fill_value: The number to write.
        wrap: In a matrix with more rows than columns, leave one row out after the diagonal's end and start it again, as
            NumPy does.

    Returns:
        This tensor.

    Raises:
        ShapeError: Fewer than 2 dimensions, or more than 2 of unequal sizes (a `RuntimeError`).

    Example:
        >>> wg.zeros(2, 2).fill_diagonal_(5)
        tensor([[5., 0.],
                [0., 5.]])
    """
    shape, strides = self.meta.shape, self.meta.strides
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(f"fill_diagonal_: takes a matrix, or more dimensions of one size, not shape {list(shape)}")
    length, step, start = min(shape), sum(strides), self.storage_offset()
    self.as_strided((length,), (step,), start).fill_(fill_value)
    if wrap and len(shape) == 2 and length:
        for row in range(shape[1] + 1, shape[0], shape[1] + 1):
            rows = min(shape[1], shape[0] - row)
            self.as_strided((rows,), (step,), start + strides[0] * row).fill_(fill_value)
    return self


METHODS = {
    "addbmm": addbmm, "addbmm_": in_place_method(addbmm), "addr": addr, "addr_": in_place_method(addr),
    "fill_diagonal_": fill_diagonal_,
}  # fmt: skip
