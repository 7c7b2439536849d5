"""Arguments for the tests of ops: random values of every shape, dtype and memory layout that an op's spec allows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..cli import samples
from ..codegen.model import Op
from ..creation.from_data import tensor
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dtypes import Array, DType
from ..runtime.host_data import host_array
from ..runtime.tensor import Tensor

__all__ = [
    "LAYOUTS", "Arguments", "MakeArguments", "broadcast_shapes", "call_shapes", "dtypes_of", "first_elements", "rng_of",
    "sample", "takes_any_shape", "to_arrays", "with_layout",
]  # fmt: skip

MakeArguments: TypeAlias = Callable[[np.random.Generator], Mapping[str, object]]
"""A user's function that draws the arguments of one call, by name: arrays, numbers and other values."""

LAYOUTS = ("transposed", "sliced", "stepped", "expanded")
_FLOATS, _INTEGERS = ("float32", "float64", "float16", "bfloat16"), ("int8", "int16", "int32", "int64", "uint8")
_DTYPES = {
    "float": _FLOATS, "numeric": (*_FLOATS, "int32", "int64"), "integer": _INTEGERS, "integral": (*_INTEGERS, "bool"),
    "bool": ("bool",), "all": (*_FLOATS, "int32", "int64", "bool"),
}  # fmt: skip
_SHAPES = ((), (1,), (65,), (5, 17), (3, 5, 18))
_RANDOM_SHAPES, _MAX_SIZE = 4, 40
_MATRIX_SIZES = ((1, 1), (5, 7), (33, 17))  # m and n of contractions


def dtypes_of(op: Op) -> tuple[str, ...]:
    """Return the names of the dtypes in which an op is tested. A composite's are those of the ops that it calls."""
    return _FLOATS if op.kind == "composite" else _DTYPES[op.dtypes]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call, by name: arrays for tensors, and numbers and static arguments as they are.

    Attributes:
        op: The op.
        values: An argument for each parameter. Arrays are float64, int64 or bool.
        description: Shapes and static arguments, for messages.
    """

    op: Op
    values: Mapping[str, object]

    @property
    def description(self) -> str:
        parts = []
        for p in self.op.params:
            value = self.values[p.name]
            shown = list(value.shape) if isinstance(value, np.ndarray) else value
            if isinstance(value, np.ndarray) or p.role == "static":
                parts.append(f"{p.name} {shown}")
        return ", ".join(parts)

    def tensors(self, device: Device, dtype: DType, *, grad: bool = False) -> dict[str, object]:
        """Return the arguments with tensors for arrays; values get `dtype`, and require grad with `grad`."""
        arguments: dict[str, object] = {}
        for p in self.op.params:
            value = self.values[p.name]
            if isinstance(value, np.ndarray) and p.is_tensor:
                is_value = p.type == "value"
                operand = tensor(value, dtype=dtype if is_value else None, device=device)
                operand.requires_grad_(grad and is_value and dtype.is_floating_point)
                arguments[p.name] = [operand, operand.detach()] if p.role == "list" else operand
            else:
                arguments[p.name] = value
        return arguments

    def replace(self, **arrays: Array) -> Arguments:
        """Return these arguments with other arrays."""
        return replace(self, values={**self.values, **arrays})


def to_arrays(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return arguments with arrays for tensors: the values that the device has, which are rounded to its dtype."""
    return {
        name: host_array(value.detach().to(dtypes.float64) if value.dtype.is_floating_point else value.detach())
        if isinstance(value, Tensor)
        else value
        for name, value in arguments.items()
    }


def rng_of(op: Op) -> np.random.Generator:
    """Return a generator whose numbers depend on the op's name only."""
    return np.random.default_rng(zlib.crc32(op.name.encode()))


def sample(op: Op, rng: np.random.Generator, dtype: DType, shape: Sequence[int], dim: object = None) -> Arguments:
    """Draw the arguments of one call.

    Args:
        op: The op.
        rng: The generator.
        dtype: The dtype for which values are drawn: integers for integers.
        shape: Sizes of the operands whose shape the op does not fix.
        dim: The static argument `dim`, if the op has one; None: its default.
    """
    sizes = tuple(shape)
    static_values = samples.statics(op, sizes)
    if dim is not None:
        static_values["dim"] = dim
    row_dim = dim if isinstance(dim, int) and op.kind == "rowwise" else -1
    values: dict[str, object] = {**samples.numbers(op), **static_values}
    for name, operand_shape in samples.shapes(op, sizes, row_dim).items():
        values[name] = _draw(op, rng, name, dtype, operand_shape, sizes)
    return Arguments(op, {p.name: values[p.name] for p in op.params})


def _draw(
    op: Op, rng: np.random.Generator, name: str, dtype: DType, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> Array:
    operand_type = op.param(name).type
    if operand_type == "mask" or dtype is dtypes.bool_:
        return rng.random(shape) > 0.5
    if operand_type == "index":
        return rng.integers(0, max(sizes[-1], 1) if sizes else 1, shape)
    low, high = op.sample_range(name) or (-2.0, 2.0)
    if dtype.is_floating_point:
        return rng.uniform(low, high, shape)
    if op.sample_range(name) is None:
        low, high = (0, 9) if dtype is dtypes.uint8 else (-5, 5)
    return rng.integers(math.ceil(low), max(math.floor(high), math.ceil(low)) + 1, shape)


def takes_any_shape(op: Op) -> bool:
    """Return True if an op works on elements or rows of operands of any shape, and has a result for no elements."""
    has_dim = any(p.name == "dim" for p in op.statics)
    return op.kind in ("pointwise", "rowwise", "scan") or (op.kind == "reduction" and has_dim)


def call_shapes(op: Op) -> Iterator[tuple[tuple[int, ...], object]]:
    """Yield the shape and `dim` of each call in a test of shapes: fixed ones, then random ones."""
    rng = rng_of(op)
    if op.kind == "contraction":
        yield from ((shape, None) for shape in _MATRIX_SIZES)
        return
    if op.kind not in ("pointwise", "rowwise", "reduction", "scan"):
        yield samples.SHAPE, None  # other shapes may not fit each other
        return
    random_shapes = [tuple(rng.integers(1, _MAX_SIZE, rng.integers(1, 4)).tolist()) for _ in range(_RANDOM_SHAPES)]
    for shape in (*_SHAPES, *random_shapes):
        dims = list(_dims(op, len(shape)))
        yield from ((shape, dim) for dim in dims)


def _dims(op: Op, ndim: int) -> Iterator[object]:
    """Yield the values of `dim` for operands of `ndim` dimensions: the default, the first and the last dimension."""
    dim = next((p for p in op.statics if p.name == "dim"), None)
    if dim is None:
        if ndim or op.kind in ("pointwise", "reduction"):
            yield None
        return
    if dim.default is None:
        yield None
    if ndim:
        is_number = dim.annotation.partition(" ")[0] == "int"
        yield from [-1, 0][: min(ndim, 2)] if is_number else [(-1,), (0,)][: min(ndim, 2)]


def broadcast_shapes(op: Op) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield shapes of a pointwise op's operands that broadcast to (5, 3, 17): one of them is smaller."""
    names = [p.name for p in op.operands if p.is_tensor and p.role != "list"]
    if op.kind != "pointwise" or len(names) < 2:
        return
    for name in names:
        for small in ((17,), (3, 1), (5, 1, 1), ()):
            yield {**dict.fromkeys(names, (5, 3, 17)), name: small}
    yield dict(zip(names, ((5, 1, 17), (3, 1), *((5, 3, 1),) * len(names)), strict=False))


def first_elements(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the first elements of an array, in a shape that broadcasts to the array's."""
    sizes = (*(1,) * (array.ndim - len(shape)), *shape)
    return array[tuple(slice(n) for n in sizes)].reshape(shape)


def with_layout(operand: Tensor, layout: str) -> Tensor:
    """Return a view with the shape of `operand` that is not contiguous: of a larger or a transposed tensor.

    Its values are those of `operand`, but an `expanded` one repeats those at its first index. A tensor without
    dimensions stays as it is.
    """
    if not operand.ndim:
        return operand
    if layout == "transposed":
        return operand.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded":
        return operand[:1].expand(operand.shape)
    array = host_array(operand.to(dtypes.float64) if operand.dtype.is_floating_point else operand)
    if layout == "sliced":  # from an offset, with gaps between rows
        base = np.pad(array, [(1, 2)] * array.ndim)
        return tensor(base, dtype=operand.dtype, device=operand.device)[(slice(1, -2),) * array.ndim]
    base = np.repeat(array, 2, axis=-1)  # stepped
    return tensor(base, dtype=operand.dtype, device=operand.device)[..., ::2]
