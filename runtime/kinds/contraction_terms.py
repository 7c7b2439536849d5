"""Parse a contraction's equation, and describe its operands by the equation's letters.

`parse` splits the equation into terms. `bind` gives every letter a size. `TensorView` holds an operand's strides by
letter, `Gemm` the matrix product that the letters merge to. `contraction_builder.py` does the merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..device import Meta
from ..dtypes import DType
from ..errors import ShapeError
from ..layout import broadcast, expand_strides
from ..records import Operand
from . import Request

__all__ = [
    "EpilogueInputs", "Gemm", "Label", "Strides", "TensorView", "bind", "epilogue_inputs", "parse",
    "scalar_positions", "strides_by_label",
]  # fmt: skip

Label = str | int  # a letter; or, for a dimension of `...`, its index from the right: -1, -2, …
Strides = dict[Label, int]


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor in memory: the position of its buffer, its dtype, and its stride along each of its labels."""

    buffer: int
    dtype: DType
    strides: Strides


@dataclass(frozen=True, slots=True)
class EpilogueInputs:
    """The inputs of an epilogue besides the product.

    Attributes:
        tensors: Views with the labels of the result.
        scalars: The number of scalar arguments.
    """

    tensors: tuple[TensorView, ...]
    scalars: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """A batch of matrix products C = A B, with all dimensions merged.

    Attributes:
        m: Size, stride in A, stride in C.
        n: Size, stride in B, stride in C.
        k: Size, stride in A, stride in B.
        batch: For each batch dimension, its size and its strides in A, B and C.
        epilogue_strides: For each tensor that the epilogue reads, its strides along m, n and each batch dimension.
    """

    m: tuple[int, int, int]
    n: tuple[int, int, int]
    k: tuple[int, int, int]
    batch: tuple[tuple[int, int, int, int], ...]
    epilogue_strides: tuple[tuple[int, int, tuple[int, ...]], ...] = ()

    @property
    def entries(self) -> int:
        """The number of matrix products in the batch."""
        count = 1
        for size, *_ in self.batch:
            count *= size
        return count

    def transposed(self) -> Gemm:
        """Return the equivalent product of transposes, C^T = B^T A^T."""
        (m, am, cm), (n, bn, cn), (k, ak, bk) = self.m, self.n, self.k
        batch = tuple((size, t, s, u) for size, s, t, u in self.batch)
        return Gemm(
            (n, bn, cn), (m, am, cm), (k, bk, ak), batch, tuple((en, em, e) for em, en, e in self.epilogue_strides)
        )  # fmt: skip


def epilogue_inputs(
    request: Request, labels: list[Label], result: Meta, sizes: dict[Label, int]
) -> EpilogueInputs | None:
    """Return the inputs of the op's epilogue, or None for an op without an epilogue.

    Raises:
        ShapeError: A tensor does not broadcast to the result's shape.
    """
    factors = request.record.detail.get("factors")
    if factors is None:
        return None
    views = []
    for position, (operand, tensor) in enumerate(request.tensors):
        if operand.name in factors:
            continue
        if broadcast([tensor.shape, result.shape], request.where()) != result.shape:
            raise ShapeError(
                f"{request.where()}: {operand.name} must broadcast to the result's shape, {list(result.shape)}; "
                "add it to the product instead"
            )
        dims = zip(labels, expand_strides(tensor, result.shape), strict=True)
        views.append(TensorView(position, tensor.dtype, {label: s for label, s in dims if sizes[label] != 1}))
    return EpilogueInputs(tuple(views), sum(o.role in ("scalar", "number") for o in request.record.operands))


def scalar_positions(epilogue: EpilogueInputs | None) -> tuple[int, ...]:
    """Return the positions, among the call's scalars, of those that a kernel takes: all with an epilogue, else none."""
    return tuple(range(epilogue.scalars)) if epilogue is not None else ()


@lru_cache(maxsize=256)
def parse(equation: str) -> tuple[str, str, str]:
    """Split `equation` into the letters of the first operand, the second operand and the result."""
    operands, _, result = equation.partition("->")
    first, _, second = operands.partition(",")
    return first, second, result


def bind(
    request: Request, terms: tuple[str, str, str], operands: Sequence[tuple[Operand, Meta]]
) -> tuple[dict[Label, int], list[list[Label]]]:
    """Match the dimensions of the operands with the letters of their terms.

    Returns:
        The size of every label, and for each term (both operands, then the result) its labels in order.

    Raises:
        ShapeError: An operand has the wrong number of dimensions, or two operands disagree on the size of a label.
    """
    sizes: dict[Label, int] = {}
    origin: dict[Label, str] = {}
    labels: list[list[Label]] = []
    for term, (operand, layout) in zip(terms, operands, strict=False):
        letters = term.removeprefix("...")
        batch_dims = layout.ndim - len(letters)
        if batch_dims < 0 or (batch_dims and letters == term):
            expected = f"{len(letters)} dimensions" if letters == term else f"at least {len(letters)} dimensions"
            raise ShapeError(f"{request.where()}: {operand.name} must have {expected} ({term or 'a scalar'})")
        term_labels: list[Label] = [*range(-batch_dims, 0), *letters]
        labels.append(term_labels)
        for label, size in zip(term_labels, layout.shape, strict=True):
            known = sizes.get(label)
            if known is None or (known == 1 and isinstance(label, int)):
                sizes[label], origin[label] = size, operand.name
            elif size != known and not (size == 1 and isinstance(label, int)):
                raise ShapeError(
                    f"{request.where()}: {_describe_clash(label, term, origin[label], known, operand.name, size)}"
                )
    batch_dims = -min((label for label in sizes if isinstance(label, int)), default=0)
    result = terms[2]
    labels.append([*(range(-batch_dims, 0) if result.startswith("...") else ()), *result.removeprefix("...")])
    return sizes, labels


def _describe_clash(label: Label, term: str, first: str, first_size: int, second: str, second_size: int) -> str:
    """Return the message for a label with two sizes, in the operands `first` and `second`. term: that of `second`."""
    if isinstance(label, int):
        position = label - len(term.removeprefix("..."))
        return f"batch sizes {first_size} and {second_size} meet in dimension {position}; they must be equal or 1"
    position = term.index(label) - len(term)
    return f"dimension {position} of {second} has size {second_size}, but {first} needs {first_size}"


def strides_by_label(labels: list[Label], layout: Meta, sizes: dict[Label, int]) -> Strides:
    """Return the stride along each label, without labels of size 1 or along which the operand broadcasts."""
    dims = zip(labels, layout.shape, layout.strides, strict=True)
    return {label: stride for label, size, stride in dims if sizes[label] != 1 and size != 1}
