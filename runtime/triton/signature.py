"""The typed signature of a kernel: the parameters that a launch passes, and the constants that a compilation fixes.

A kernel's parameters are, in order: one pointer per buffer; the geometry; `numbers` and `integers`, if it has them;
constants. The constants are `C` (the compute type), `ALIGNED` (whether every buffer begins at a multiple of 16 bytes,
for kernels that use this) and the step's `defines`. The defines `num_warps`, `num_stages`, `num_ctas` and
`enable_reflect_ftz` are options of the compiler instead. This module does not import triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from .. import dtypes
from ..backends.protocol import Instance, Step
from . import source

if TYPE_CHECKING:
    from .triton_types import Constant

__all__ = ["POINTERS", "Signature", "resolve", "signature"]

POINTERS = {
    "bool": "*i1", "uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
    "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64",
}  # fmt: skip
COMPUTE = {
    "float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16", "int": "int32",
    "long": "int64",
}  # fmt: skip
_NUMBERS = {"float": "fp32", "double": "fp64"}
_STRUCT_CODES = {"i32": "i", "i64": "q", "fp32": "f", "fp64": "d"}
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "enable_reflect_ftz")
_ALIGNMENT = 16
_DTYPES = frozenset((*COMPUTE.values(), "float16", "bfloat16", "int1"))


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel with everything fixed except the values of its arguments.

    types: Triton's signature, every parameter in order (`*fp32`, `i32`, a tuple of them, `constexpr`).
    constants: values of the constexpr parameters; a string that is a dtype's name means that Triton dtype (`resolve`).
    divisible: for pointers, integers and tuples of integers whose values are multiples of a power of two: that power.
    options: compiler options. codes: `struct` codes of the passed arguments in order, tuples flattened.
    """

    entry: str
    types: Mapping[str, str | tuple[str, ...]]
    constants: Mapping[str, Constant]
    divisible: Mapping[str, int]
    options: Mapping[str, int]
    codes: str

    @property
    def key(self) -> str:
        """A cache key of everything that the compiler gets besides the source."""
        mappings = (self.types, self.constants, self.options, self.divisible)
        return repr((self.entry, *(tuple(m.items()) for m in mappings)))

    @property
    def attributes(self) -> dict[tuple[int, ...], list[list[str | int]]]:
        """`divisible` in the form of Triton's compiler, by position (and position within a tuple)."""
        divisibility: dict[tuple[int, ...], list[list[str | int]]] = {}
        for position, (name, type) in enumerate(self.types.items()):
            if divisor := self.divisible.get(name):
                indices = range(len(type)) if isinstance(type, tuple) else None
                positions: list[tuple[int, ...]] = (
                    [(position,)] if indices is None else [(position, i) for i in indices]
                )
                divisibility.update({path: [["tt.divisibility", divisor]] for path in positions})
        return divisibility


def signature(step: Step, aligned: bool) -> Signature:
    """Return the signature of one launch.

    It depends on the number of sizes and on their divisibility by a power of two (`_divisor`), but not on their values,
    so a new shape rarely needs a compilation.

    Args:
        step: the launch.
        aligned: every buffer's first element is at a multiple of 16 bytes.
    """
    assert isinstance(step.geometry, tuple)
    divisor = _divisor(step.instance)
    # (length of a tuple or -1, is divisible) of each geometry value: all that the signature depends on
    geometry_kinds = tuple((len(v) if isinstance(v, tuple) else -1, _divides(divisor, v)) for v in step.geometry)
    return _signature(step.instance, geometry_kinds, len(step.scalars), len(step.integers), aligned)


def _divisor(instance: Instance) -> int:
    """Return the power of two whose multiples among the sizes are worth a kernel of their own.

    Tiles of a matrix product are loaded 16 bytes at a time, which are 8 elements of half precision or 4 of float32.
    """
    if not instance.entry.startswith("contraction_tile"):
        return _ALIGNMENT
    sizes = {dtypes.parse(slot.dtype).itemsize for slot in instance.slots[:2]}
    return _ALIGNMENT // max(sizes) if max(sizes) in (2, 4) else _ALIGNMENT


def _divides(divisor: int, value: int | tuple[int, ...]) -> bool:
    """Return True if `divisor` divides the value, or all values of a tuple."""
    return all(v % divisor == 0 for v in (value if isinstance(value, tuple) else (value,)))


@cache
def _signature(
    instance: Instance, geometry_kinds: tuple[tuple[int, bool], ...], scalars: int, integers: int, aligned: bool
) -> Signature:
    declared = source.parameters(instance.text, instance.entry)
    defines = dict(instance.defines)
    index = "i32" if defines.get("INDEX") == "int32" else "i64"
    types: dict[str, str | tuple[str, ...]] = {}
    constants: dict[str, Constant] = {}
    divisible: dict[str, int] = {}
    buffer_count = len(instance.slots)
    argument_names = [p.name for p in declared if not p.constexpr and p.name not in ("numbers", "integers")]
    if len(argument_names) != buffer_count + len(geometry_kinds):
        raise ValueError(
            f"{instance.entry}: takes {argument_names}, but the step has {buffer_count} buffers and "
            f"{len(geometry_kinds)} geometry values"
        )
    for name, slot in zip(argument_names, instance.slots, strict=False):
        types[name] = POINTERS[slot.dtype]
        if aligned:
            divisible[name] = _ALIGNMENT
    for name, (length, divides) in zip(argument_names[buffer_count:], geometry_kinds, strict=True):
        types[name] = index if length < 0 else (index,) * length if length else "constexpr"
        if not length:
            constants[name] = None
        elif divides:
            divisible[name] = _divisor(instance)
    number_types = {
        "numbers": (_NUMBERS.get(instance.element, "i64"),) * scalars,
        "integers": ("i64",) * integers,
    }
    ordered: dict[str, str | tuple[str, ...]] = {}
    for parameter in declared:
        name = parameter.name
        if name in number_types:
            ordered[name] = number_types[name] or "constexpr"
            if not number_types[name]:
                constants[name] = None
        elif parameter.constexpr:
            ordered[name] = "constexpr"
            constant_values = {"C": COMPUTE[instance.element], "ALIGNED": int(aligned), **defines}
            if name not in constant_values:
                raise ValueError(f"{instance.entry}: the step defines no constant {name}")
            constants[name] = constant_values[name]
        else:
            ordered[name] = types[name]
    flat = [t for type in ordered.values() for t in (type if isinstance(type, tuple) else (type,)) if t != "constexpr"]
    codes = "".join("Q" if t[0] == "*" else _STRUCT_CODES[t] for t in flat)
    options = {o: int(defines[o]) for o in _OPTIONS if o in defines}
    return Signature(instance.entry, ordered, constants, divisible, options, codes)


def resolve(constants: Mapping[str, Constant], language: object) -> dict[str, object]:
    """Return `constants` with names of dtypes replaced by the dtypes of `language` (triton.language)."""
    return {k: getattr(language, v) if isinstance(v, str) and v in _DTYPES else v for k, v in constants.items()}
