"""Products of vectors, matrices and batches of them."""

from __future__ import annotations

from math import prod

from .._generated import ops
from ..arguments.out import copy_to_out
from ..runtime import views
from ..runtime.autocast import match_autocast_dtype
from ..runtime.autograd.einsum_rules import contraction
from ..runtime.context import state
from ..runtime.dispatch import call, is_recorded
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

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
    """Multiply vectors, matrices and batches of matrices by NumPy's rules.

        out[..., i, j] = sum over k of input[..., i, k] * other[..., k, j]

    Two vectors give their dot product, a 0-d tensor; a matrix and a vector give a vector. Leading dimensions are a
    batch, and broadcast. Dtypes are integer or floating; two bool tensors are an error. Under autocast, operands are
    cast to its half dtype.

    Args:
        input: `(n,)`, `(m, n)` or `(..., m, n)`.
        other: `(n,)`, `(n, p)` or `(..., n, p)`; leading dimensions broadcast.
        out: Tensor to write the result to.

    Returns:
        `(..., m, p)` for matrices; the dimension of a vector operand is left out. The dtype is the promoted one.

    Raises:
        ArgumentError: An operand is not a tensor.
        ShapeError: An operand is 0-d, or the shapes do not fit.

    Example:
        >>> a = wg.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> wg.matmul(a, wg.tensor([1.0, 10.0]))
        tensor([21., 43.])
        >>> wg.matmul(wg.ones(5, 2, 3), wg.ones(3, 4)).shape
        weftgrad.Size([5, 2, 4])
    """
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise ArgumentError("matmul: takes two tensors")
    input_ndim, other_ndim = input.meta.ndim, other.meta.ndim
    if input_ndim == 0 or other_ndim == 0:
        raise ShapeError("matmul: both tensors need at least one dimension; use * for numbers")
    if input_ndim == 2 and other_ndim == 2:
        return ops.mm(input, other, out=out)
    elif input_ndim == 1:
        output = _inner_product(input, other) if other_ndim == 1 else ops.vm(input, other)
    elif other_ndim == 1:
        output = ops.bmv(input, other)
    else:
        output = ops.matmul_batched(input, other)
    return output if out is None else copy_to_out(output, out, "matmul")


def _inner_product(input: Tensor, other: Tensor) -> Tensor:
    """Return the dot product. Unlike `ops.dot`, it follows autocast, as the other forms of `matmul` do."""
    if state().autocast is None:
        return ops.dot(input, other)
    return call(contraction("k,k->"), (input, other))


def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: Tensor | float = 1,
    alpha: Tensor | float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * (mat1 @ mat2)` for `(n, m)` and `(m, p)`; `input` broadcasts to `(n, p)`.

    Args:
        input: Tensor that broadcasts to `(n, p)`.
        mat1: Tensor of shape `(n, m)`.
        mat2: Tensor of shape `(m, p)`.
        beta: Factor of `input`; if it is 0, `input` is not read.
        alpha: Factor of the product.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(n, p)`.

    Example:
        >>> wg.addmm(wg.tensor([1.0]), wg.tensor([[1.0, 2.0]]), wg.tensor([[3.0], [4.0]]))
        tensor([[12.]])
    """
    factors = fusable_factors(beta, alpha, input, mat1, mat2, 2, 2)
    if factors is not None:
        output = ops.addmm_product(input, mat1, mat2, factors[0], factors[1])
    else:
        output = _add_scaled_product(input, ops.mm(mat1, mat2), beta, alpha)
    return output if out is None else copy_to_out(output, out, "addmm")


def _addmm_activation(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Tensor | float = 1, alpha: Tensor | float = 1,
    use_gelu: bool = False,
) -> Tensor:  # fmt: skip
    """Return relu (or gelu, in its erf form, with `use_gelu`) of `beta * input + alpha * (mat1 @ mat2)`.

    It is one kernel if no gradient is recorded; otherwise the activation is a separate op.

    Args:
        input: Tensor that broadcasts to `(n, p)`.
        mat1: Tensor of shape `(n, m)`.
        mat2: Tensor of shape `(m, p)`.
        beta: Factor of `input`.
        alpha: Factor of the product.
        use_gelu: Whether to apply gelu instead of relu.

    Returns:
        Tensor of shape `(n, p)`.

    Example:
        >>> wg._addmm_activation(wg.tensor([-9.0]), wg.tensor([[1.0, 2.0]]), wg.tensor([[3.0, 6.0], [4.0, -1.0]]))
        tensor([[2., 0.]])
    """
    only_tensors("_addmm_activation", input, mat1, mat2)
    factors = None if is_recorded(input, mat1, mat2) else fusable_factors(beta, alpha, input, mat1, mat2, 2, 2)
    if factors is not None:
        return (ops.addmm_gelu if use_gelu else ops.addmm_relu)(input, mat1, mat2, factors[0], factors[1])
    output = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return ops.gelu_erf(output) if use_gelu else ops.relu(output)


def fusable_factors(
    beta: object, alpha: object, input: object, a: object, b: object, a_ndim: int, b_ndim: int
) -> tuple[float, float] | None:
    """Return `beta` and `alpha` if `beta * input + alpha * (a @ b)` can be one kernel, else None.

    `beta` and `alpha` must be numbers, and the operands floating tensors that `_can_add_in_kernel` accepts. `beta = 0`
    is excluded, because NaN in `input` must then be ignored, as in BLAS.

    Args:
        beta: Factor of `input`.
        alpha: Factor of the product.
        input: The summand.
        a: First factor.
        b: Second factor.
        a_ndim: Required number of dimensions of `a`.
        b_ndim: Required number of dimensions of `b`.
    """
    if not (type(beta) is int or type(beta) is float) or not (type(alpha) is int or type(alpha) is float) or beta == 0:
        return None
    if not (isinstance(input, Tensor) and isinstance(a, Tensor) and isinstance(b, Tensor)):
        return None
    a_shape, b_shape = a.meta.shape, b.meta.shape
    if (
        len(a_shape) != a_ndim
        or len(b_shape) != b_ndim
        or a_shape[:-2] != b_shape[:-2]
        or a_shape[-1] != b_shape[a_ndim - 2]
    ):
        return None
    return (beta, alpha) if _can_add_in_kernel(input, a, b, a_shape[:-1] + b_shape[a_ndim - 1 :]) else None


def _can_add_in_kernel(input: Tensor, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> bool:
    """Return True if the kernel of the product `a @ b`, of shape `shape`, can add `input`.

    All three must have one floating dtype, and `input` must broadcast to `shape`.
    """
    layout, dtype = input.meta, a.meta.dtype
    if layout.dtype is not dtype or b.meta.dtype is not dtype or dtype.kind != "f" or layout.ndim > len(shape):
        return False
    return all(n in (1, m) for n, m in zip(layout.shape[::-1], shape[::-1], strict=False))


def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: Tensor | float = 1,
    alpha: Tensor | float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * (mat @ vec)` for `(n, m)` and `(m,)`; `input` broadcasts to `(n,)`.

    Args:
        input: Tensor that broadcasts to `(n,)`.
        mat: Tensor of shape `(n, m)`.
        vec: Tensor of shape `(m,)`.
        beta: Factor of `input`.
        alpha: Factor of the product.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(n,)`.

    Example:
        >>> wg.addmv(wg.tensor([1.0]), wg.tensor([[1.0, 2.0]]), wg.tensor([3.0, 4.0]))
        tensor([12.])
    """
    factors = fusable_factors(beta, alpha, input, mat, vec, 2, 1)
    if factors is not None:
        output = ops.addmv_product(input, mat, vec, factors[0], factors[1])
    else:
        output = _add_scaled_product(input, ops.mv(mat, vec), beta, alpha)
    return output if out is None else copy_to_out(output, out, "addmv")


def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: Tensor | float = 1,
    alpha: Tensor | float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * (batch1 @ batch2)` for `(b, n, m)` and `(b, m, p)`.

    Args:
        input: Tensor that broadcasts to `(b, n, p)`.
        batch1: Tensor of shape `(b, n, m)`.
        batch2: Tensor of shape `(b, m, p)`.
        beta: Factor of `input`.
        alpha: Factor of the products.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(b, n, p)`.

    Example:
        >>> wg.baddbmm(wg.ones(1, 1, 1), wg.tensor([[[1.0, 2.0]]]), wg.tensor([[[3.0], [4.0]]]))
        tensor([[[12.]]])
    """
    factors = fusable_factors(beta, alpha, input, batch1, batch2, 3, 3)
    if factors is not None:
        output = ops.baddbmm_product(input, batch1, batch2, factors[0], factors[1])
    else:
        output = _add_scaled_product(input, ops.bmm(batch1, batch2), beta, alpha)
    return output if out is None else copy_to_out(output, out, "baddbmm")


def _add_scaled_product(input: Tensor, product: Tensor, beta: Tensor | float, alpha: Tensor | float) -> Tensor:
    """Return `beta * input + alpha * product`, without multiplications by 1."""
    input = match_autocast_dtype(input, product)
    if beta == 0:  # ignore NaN in input, as BLAS does
        return product if alpha == 1 else ops.mul(product, alpha)
    base = input if beta == 1 else ops.mul(input, beta)
    return ops.add(base, product if alpha == 1 else ops.mul(product, alpha))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`.

    Args:
        input: `(..., in_features)`.
        weight: `(out_features, in_features)`, or `(in_features,)`.
        bias: `(out_features,)` or None.

    Returns:
        `(..., out_features)`, or `(...)` for a vector `weight`.

    Raises:
        ShapeError: The last dimensions differ.

    Example:
        >>> wg.nn.functional.linear(wg.tensor([1.0, 2.0]), wg.tensor([[3.0, 4.0]]), wg.tensor([0.5]))
        tensor([11.5000])
    """
    only_tensors("linear", input, weight)
    if weight.meta.ndim == 1:
        output = matmul(input, weight)
    elif input.meta.ndim == 2:
        output, bias = _linear(input, weight, bias)
    else:  # flatten the batch, so that it is one matrix product
        shape = input.meta.shape
        if not shape or shape[-1] != weight.meta.shape[-1]:
            raise ShapeError(
                f"linear: input {list(shape)} and weight {list(weight.meta.shape)} must agree in their last dimension"
            )
        flat = views.reshape(input, (-1, shape[-1])) if input.meta.numel else input
        output, bias = _linear(flat, weight, bias)
        if input.meta.numel:
            output = views.reshape(output, (*shape[:-1], weight.meta.shape[0]))
    return output if bias is None else ops.add(output, match_autocast_dtype(bias, output))


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return `rows @ weight.T`, and the bias if the kernel could not add it."""
    if isinstance(bias, Tensor) and _can_add_in_kernel(bias, rows, weight, weight.meta.shape[:1]):
        return ops.linear_bias(rows, weight, bias), None
    return ops.linear_product(rows, weight), bias


def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the sums of products over the last dimensions: `(..., n)` and `(*, n)` give `(..., *)`.

    If one of them is 0-d, the result is their elementwise product.

    Args:
        input: Tensor of shape `(..., n)`.
        other: Tensor of shape `(*, n)`.
        out: Tensor to write the result to.

    Returns:
        Tensor of shape `(..., *)`.

    Example:
        >>> wg.inner(wg.tensor([1, 2]), wg.tensor([3, 4]))
        tensor(11)
    """
    only_tensors("inner", input, other)
    output = _inner(input, other)
    return output if out is None else copy_to_out(output, out, "inner")


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
    """Return the sum of a matrix's diagonal; integers sum in int64.

    Args:
        input: Tensor of shape `(m, n)`.

    Returns:
        Tensor of shape `()`.

    Raises:
        ShapeError: `input` is not a matrix.
        NotSupported: `input` is bool.

    Example:
        >>> wg.trace(wg.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    only_tensors("trace", input)
    if input.meta.ndim != 2:
        raise ShapeError(f"trace: takes a matrix, not shape {list(input.meta.shape)}")
    if input.meta.dtype.kind == "b":
        raise NotSupported("trace: takes numbers, not bool; convert with .to()")
    return ops.sum(ops.diagonal(input))


def _reflected_matmul(self: Tensor, other: Tensor) -> Tensor:
    """Return `other @ self`; see `matmul`."""
    return matmul(other, self)


METHODS: dict[str, object] = {
    name: globals()[name]
    for name in (
        "addmm", "addmv", "baddbmm", "inner", "matmul", "trace",
    )
}  # fmt: skip
METHODS |= {"__matmul__": matmul, "__rmatmul__": _reflected_matmul}
