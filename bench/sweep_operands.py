"""Generate operands for the suite `specs` from an op's signature: shapes, random values, and numbers that it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..codegen.kinds import contraction
from ..codegen.model import MISSING, Op
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError

if TYPE_CHECKING:
    from .library_types import Operation, Tensor

__all__ = [
    "Shape",
    "call_of_tensors",
    "dimension_letters",
    "equation",
    "fixed_arguments",
    "random_arrays",
    "tensor_shapes",
    "valid_shapes",
]

Shape = tuple[int, ...]


def tensor_shapes(op: Op, shape: Shape) -> list[Shape]:
    """Return the shapes of an op's tensors."""
    tensors = [p for p in op.params if p.role == "tensor"]
    if op.kind != "contraction":
        by_scope = {"full": shape, "column": shape[-1:], "row": shape[:-1]}
        return [by_scope.get(p.scope, shape) for p in tensors]
    terms = equation(op)[0]
    letters = dimension_letters(op)
    size = dict(zip(letters, shape * len(letters) if len(shape) == 1 else shape, strict=True))
    return [tuple(size[letter] for letter in term) for term in terms]


def equation(op: Op) -> tuple[list[str], str]:
    """Return the einsum letters of the operands and of the result, without batch dimensions (`...`)."""
    out = contraction.terms(op)[2].replace("...", "")
    return [term.replace("...", "") for term in contraction.letters(op).values()], out


def dimension_letters(op: Op) -> list[str]:
    """Return the einsum letters of a contraction's dimensions, each once."""
    return list(dict.fromkeys("".join(equation(op)[0])))


def valid_shapes(op: Op, shapes: Sequence[Shape]) -> list[Shape]:
    """Return the shapes that an op accepts: for a contraction one size for all letters, or one size per letter."""
    if op.kind != "contraction":
        return list(shapes)
    letters = dimension_letters(op)
    valid_shapes = [shape for shape in shapes if len(shape) in (1, len(letters))]
    if not valid_shapes:
        raise ArgumentError(
            f"bench: --shapes has none for {op.name}: one size for all of its dimensions, or one for each of "
            f"{', '.join(letters)}, as in {'x'.join(['64'] * len(letters))}"
        )
    return valid_shapes


def random_arrays(op: Op, shape: Shape, dtype: str) -> list[Array]:
    """Return random operands: normal, or uniform in the range of the spec's `sample`.

    Integers are in -50 to 50, or in -10 to 10 if they have 8 bits, so that products of two fit; none is negative if the
    dtype has no sign.
    """
    integral = "int" in dtype
    limit = 10 if dtype in ("int8", "uint8") else 50
    default_bounds = (0 if dtype == "uint8" else -limit, limit)
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for param, size in zip([p for p in op.params if p.role == "tensor"], tensor_shapes(op, shape), strict=True):
        bounds = op.sample_range(param.name)
        if param.type == "mask" or dtype == "bool":
            arrays.append(rng.random(size) < 0.5)
        elif param.type == "index" or integral:
            low, high = default_bounds if bounds is None else (math.ceil(bounds[0]), math.floor(bounds[1]))
            values = rng.integers(max(low, default_bounds[0]), min(high, limit) + 1, size)
            arrays.append(values.astype(dtype) if integral else values)
        elif bounds is None:
            arrays.append(rng.standard_normal(size, dtype=np.float32))
        else:
            arrays.append(rng.uniform(bounds[0], bounds[1], size).astype(np.float32))
    return arrays


def call_of_tensors(op: Op, function: Operation) -> Operation:
    """Return the op as a function of its tensors alone.

    Required numbers are 0.5, a required `dim` is the last one, and other parameters keep their defaults. A default
    `dim` is passed explicitly, because PyTorch's softmax requires it.

    Raises:
        ArgumentError: as `fixed_arguments` does.
    """
    defaults, keywords = fixed_arguments(op)

    def call(*tensors: Tensor) -> Tensor:
        remaining = iter(tensors)
        result = function(*[next(remaining) if default is None else default[0] for default in defaults], **keywords)
        return result[0] if isinstance(result, tuple) else result

    return call


def fixed_arguments(op: Op) -> tuple[list[tuple[float] | None], dict[str, object]]:
    """Return the arguments beside an op's tensors: for each positional one a number, or None for a tensor; keywords.

    Raises:
        ArgumentError: the op needs an argument for which no rule here has a value.
    """
    keywords: dict[str, object] = {}
    defaults: list[tuple[float] | None] = []
    for param in op.params:
        if param.role == "tensor":
            defaults.append(None)
        elif param.default is not MISSING:
            if param.name == "dim" and param.default is not None:
                keywords["dim"] = param.default
        elif param.role in ("scalar", "number"):
            defaults.append((0.5,))
        elif param.name == "dim":
            defaults.append((-1,))
        else:
            raise ArgumentError(f"bench: {op.name} needs {param.name}, for which no rule here has a value")
    return defaults, keywords
