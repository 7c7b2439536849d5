"""What factorizations and solvers share: checks of their operands, and tensors as batches of matrices `(B, m, n)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ..arguments.out import copy_to_out
from ..runtime import host_data, views
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DTypeError, LinAlgError, ShapeError, UnsupportedDType
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = [
    "call_multiple", "check_matrices", "copy_results", "expand_batch", "leading_shape", "raise_on_failure", "to_batch",
    "transpose",
]  # fmt: skip


def check_matrices(where: str, square: bool, **operands: Tensor) -> None:
    """Check that every operand is a tensor of matrices in float32 or float64, all in one dtype.

    Args:
        where: The function, for errors.
        square: Whether the first operand's matrices must be square.
        **operands: The operands by the names of the parameters.

    Raises:
        ArgumentError: An operand is no tensor.
        ShapeError: An operand has less than two dimensions, or its matrices are not square.
        DTypeError: An operand is not floating, or dtypes differ; `UnsupportedDType` for half types.
    """
    only_tensors(where, *operands.values())
    (first_name, first), *_ = operands.items()
    for name, operand in operands.items():
        layout = operand.meta
        if layout.dtype.kind != "f":
            raise DTypeError(
                f"{where}: expected a floating point tensor as {name}, got {layout.dtype.name}; convert with .float()"
            )
        if layout.ndim < 2:
            raise ShapeError(
                f"{where}: the input tensor {name} must have at least 2 dimensions, not shape {list(layout.shape)}; "
                "add dimensions of size 1 with unsqueeze()"
            )
        if layout.dtype.itemsize < 4:
            raise UnsupportedDType(
                f"{where}: low precision dtypes are not supported, got {layout.dtype.name}; convert with .float()"
            )
        if layout.dtype is not first.meta.dtype:
            raise DTypeError(
                f"{where}: expected {first_name} and {name} to have the same dtype, but found {first.meta.dtype.name} "
                f"and {layout.dtype.name}; convert one with .to()"
            )
    m, n = first.meta.shape[-2:]
    if square and m != n:
        raise ShapeError(
            f"{where}: {first_name} must be batches of square matrices, but they are {m} by {n} matrices, of shape "
            f"{list(first.meta.shape)}"
        )


def to_batch(matrices: Tensor) -> Tensor:
    """Return `(..., m, n)` as `(B, m, n)`: a view, unless the strides of leading dimensions need a copy."""
    shape = matrices.meta.shape
    if len(shape) == 3:
        return matrices
    return views.reshape(matrices, (prod(shape[:-2]), *shape[-2:]))


def leading_shape(where: str, *operands: Tensor) -> tuple[int, ...]:
    """Return the broadcast shape of all dimensions but the last two.

    Raises:
        ShapeError: The shapes do not broadcast.
    """
    shape: tuple[int, ...] = ()
    for operand in operands:
        lead = operand.meta.shape[:-2]
        ndim = max(len(shape), len(lead))
        pairs = zip((1,) * (ndim - len(shape)) + shape, (1,) * (ndim - len(lead)) + lead, strict=True)
        sizes = []
        for a, b in pairs:
            if a != b and 1 not in (a, b):
                shapes = " and ".join(str(list(x.meta.shape)) for x in operands)
                raise ShapeError(f"{where}: the batch dimensions of shapes {shapes} do not broadcast; make them equal")
            sizes.append(b if a == 1 else a)
        shape = tuple(sizes)
    return shape


def expand_batch(tensor: Tensor, lead: tuple[int, ...], matrix_ndim: int = 2) -> Tensor:
    """Broadcast all dimensions but the last `matrix_ndim` to `lead`, and merge them into one.

    The result is contiguous if its batch had to be broadcast.
    """
    shape = tensor.meta.shape
    matrix_shape = shape[len(shape) - matrix_ndim :]
    if shape[: len(shape) - matrix_ndim] != lead:
        tensor = views.contiguous(call(registry["expand"], (tensor,), ((*lead, *matrix_shape),)))
    if len(lead) == 1:
        return tensor
    return views.reshape(tensor, (prod(lead), *matrix_shape))


def transpose(matrices: Tensor) -> Tensor:
    """Return a view with the last two dimensions exchanged."""
    return call(registry["transpose"], (matrices,), (-2, -1))


def call_multiple(name: str, *operands: Tensor) -> tuple[Tensor, ...]:
    """Call an op that has several results and no static arguments."""
    results = call(registry[name], operands)
    assert isinstance(results, tuple)
    return results


def raise_on_failure(where: str, info: Tensor, describe: Callable[[int], str]) -> None:
    """Raise `LinAlgError` if `info`, the codes of a batch `(B,)`, has one that is not 0. This waits for the device.

    Args:
        where: The function.
        info: Codes of a factorization.
        describe: From a code to the rest of the message.
    """
    if info.meta.device.type == "meta":
        return
    codes = host_data.host_array(info).reshape(-1)
    if not codes.any():
        return
    element = int(codes.nonzero()[0][0])
    batch = f" (Batch element {element}):" if info.meta.ndim else ""
    raise LinAlgError(f"{where}:{batch} {describe(int(codes[element]))}")


def copy_results(where: str, results: Sequence[Tensor], out: Sequence[Tensor]) -> list[Tensor]:
    """Copy several results to `out`.

    Raises:
        ArgumentError: `out` has another number of tensors, or is no sequence; see `copy_to_out` for other errors.
    """
    if not isinstance(out, Sequence) or len(out) != len(results):
        length = f"{len(out)} of them" if isinstance(out, Sequence) else type(out).__name__
        raise ArgumentError(f"{where}: out must be a tuple of {len(results)} tensors, not {length}")
    return [copy_to_out(result, target, where) for result, target in zip(results, out, strict=True)]
