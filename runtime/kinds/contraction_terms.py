"""The operands of a contraction by the letters of its equation: where they lie, and the matrices they merge to."""

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

__all__ = ["Beside", "Gemm", "Label", "Place", "Strides", "beside", "bind", "parse", "strides_by_label"]

Label = str | int  # a letter, or a dimension of `...` counted from the right: -1, -2, …
Strides = dict[Label, int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a matrix lies: a buffer's position, its dtype, and a stride for each label it has."""

    buffer: int
    dtype: DType
    strides: Strides


@dataclass(frozen=True, slots=True)
class Beside:
    """What an epilogue reads beside the product: tensors, with the labels of the result, and how many numbers."""

    places: tuple[Place, ...]
    numbers: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """The merged problem: size and strides (in those of A, B, C that have it) of m, n, k and each batch dimension.

    beside: for each tensor of an epilogue its strides along m, n and each batch dimension.
    """

    m: tuple[int, int, int]
    n: tuple[int, int, int]
    k: tuple[int, int, int]
    batch: tuple[tuple[int, int, int, int], ...]
    beside: tuple[tuple[int, int, tuple[int, ...]], ...] = ()

    @property
    def entries(self) -> int:
        """Products of the batch."""
        count = 1
        for size, *_ in self.batch:
            count *= size
        return count

    def turned(self) -> Gemm:
        """The product of the transposes, the other way around."""
        (m, am, cm), (n, bn, cn), (k, ak, bk) = self.m, self.n, self.k
        batch = tuple((size, t, s, u) for size, s, t, u in self.batch)
        return Gemm((n, bn, cn), (m, am, cm), (k, bk, ak), batch, tuple((en, em, e) for em, en, e in self.beside))


def beside(request: Request, labels: list[Label], out: Meta, sizes: dict[Label, int]) -> Beside | None:
    """The operands that the op's epilogue names, or None without one. Raises `ShapeError` for a tensor that does not
    broadcast to the result."""
    given = request.record.detail.get("factors")
    if given is None:
        return None
    places = []
    for position, (operand, layout) in enumerate(request.tensors):
        if operand.name in given:
            continue
        if broadcast([layout.shape, out.shape], request.where()) != out.shape:
            raise ShapeError(
                f"{request.where()}: {operand.name} must broadcast to the result's shape, {list(out.shape)}; "
                "add it to the product instead"
            )
        found = zip(labels, expand_strides(layout, out.shape), strict=True)
        places.append(Place(position, layout.dtype, {label: s for label, s in found if sizes[label] != 1}))
    return Beside(tuple(places), sum(o.role in ("scalar", "number") for o in request.record.operands))


@lru_cache(maxsize=256)
def parse(equation: str) -> tuple[str, str, str]:
    """The letters of both operands and of the result."""
    operands, _, result = equation.partition("->")
    first, _, second = operands.partition(",")
    return first, second, result


def bind(
    request: Request, terms: tuple[str, str, str], operands: Sequence[tuple[Operand, Meta]]
) -> tuple[dict[Label, int], list[list[Label]]]:
    """Sizes of all labels, and the labels of each term in order. Raises `ShapeError`."""
    sizes: dict[Label, int] = {}
    origin: dict[Label, str] = {}
    labels: list[list[Label]] = []
    for term, (operand, layout) in zip(terms, operands, strict=False):
        letters = term.removeprefix("...")
        dots = layout.ndim - len(letters)
        if dots < 0 or (dots and letters == term):
            wanted = f"{len(letters)} dimensions" if letters == term else f"at least {len(letters)} dimensions"
            raise ShapeError(f"{request.where()}: {operand.name} must have {wanted} ({term or 'a scalar'})")
        own: list[Label] = [*range(-dots, 0), *letters]
        labels.append(own)
        for label, size in zip(own, layout.shape, strict=True):
            have = sizes.get(label)
            if have is None or (have == 1 and isinstance(label, int)):
                sizes[label], origin[label] = size, operand.name
            elif size != have and not (size == 1 and isinstance(label, int)):
                raise ShapeError(f"{request.where()}: {_clash(label, term, origin[label], have, operand.name, size)}")
    dots = -min((label for label in sizes if isinstance(label, int)), default=0)
    result = terms[2]
    labels.append([*(range(-dots, 0) if result.startswith("...") else ()), *result.removeprefix("...")])
    return sizes, labels


def _clash(label: Label, term: str, one: str, size: int, other: str, another: int) -> str:
    if isinstance(label, int):
        position = label - len(term.removeprefix("..."))
        return f"batch sizes {size} and {another} meet in dimension {position}; they must be equal or 1"
    return f"{label!r} is {size} in {one} and {another} in {other}; they must be equal"


def strides_by_label(labels: list[Label], layout: Meta, sizes: dict[Label, int]) -> Strides:
    """Strides by label, without labels of size 1 and those broadcast over."""
    found = zip(labels, layout.shape, layout.strides, strict=True)
    return {label: stride for label, size, stride in found if sizes[label] != 1 and size != 1}
