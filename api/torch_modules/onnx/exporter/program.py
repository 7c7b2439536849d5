"""The calls of a model as one list, merged from runs with different sizes in the dynamic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...runtime.device import Meta
from ...runtime.dtypes import DType
from ...runtime.records import OpRecord
from ...runtime.tensor import Tensor
from ..errors import DynamicSizeError
from .capture import CapturedCall, Constant, Place
from .dynamic_sizes import Int, Size, Varying, merge

if TYPE_CHECKING:
    from ...runtime.call_types import Static

_PROGRESSIONS = ("arange_fill", "linspace_fill")  # ops of the kind `random` that draw no numbers

__all__ = ["Call", "Number", "Program", "Ref", "Run", "call_text", "merge_runs"]

Number: TypeAlias = bool | int | float | Size | Varying


@dataclass(frozen=True, slots=True)
class Ref:
    """Where the elements of a tensor are, in all runs (see `capture.Place`).

    Attributes:
        memory: Serial number of the storage.
        start: Offset of the first element, in bytes.
        dtype: Element type.
        shape: Sizes.
        strides: Strides in elements.
        meta: The layout in run 0.
    """

    memory: int
    start: Int
    dtype: DType
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    meta: Meta = field(compare=False)

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(slots=True, eq=False)
class Call:
    """One call in all runs; the fields are those of `capture.CapturedCall`.

    Attributes:
        unstable: Positions of constants that have other values in other runs.
    """

    record: OpRecord
    operands: list[Ref | Number | None]
    statics: tuple[Static, ...]
    results: list[Ref]
    layer: str
    constants: dict[int, Constant]
    overwritten: list[tuple[Ref, Constant]]
    unstable: set[int]

    def refs(self) -> list[Ref]:
        """Return the operands that are tensors."""
        return [operand for operand in self.operands if isinstance(operand, Ref)]


@dataclass(slots=True)
class Run:
    """What one run of the model recorded.

    Attributes:
        dims: The size of each dynamic dimension.
        calls: The calls.
        inputs: Places of the inputs.
        outputs: Places of the outputs.
        output_constants: The outputs that do not depend on the inputs, by position.
        members: Place, path and tensor of each parameter and buffer.
        host_reads: Layers that read values which depend on the inputs on the host.
    """

    dims: Mapping[str, int]
    calls: list[CapturedCall]
    inputs: list[Place]
    outputs: list[Place]
    output_constants: dict[int, Constant]
    members: list[tuple[Place, str, Tensor]]
    host_reads: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Program:
    """The calls that the outputs depend on.

    Attributes:
        dims: For each run, the size of each dynamic dimension.
        calls: All calls, in order.
        inputs: The inputs.
        outputs: The outputs.
        output_constants: The outputs that do not depend on the inputs, by position.
        members: Place, path and tensor of each parameter and buffer.
        computed: Memories whose contents depend on inputs or on dynamic dimensions.
        live: Indices of the calls whose results the outputs may depend on.
    """

    dims: list[Mapping[str, int]]
    calls: list[Call]
    inputs: list[Ref]
    outputs: list[Ref]
    output_constants: dict[int, Constant]
    members: list[tuple[Ref, str, Tensor]]
    computed: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)


def call_text(record: OpRecord, layer: str) -> str:
    """Return an op and its layer as messages name them."""
    return f"{record.called or record.name} in {f'layer {layer!r}' if layer else 'the model'}"


def merge_runs(runs: Sequence[Run], *, fold_constants: bool = True) -> Program:
    """Merge runs of one model with different sizes.

    Args:
        runs: The runs.
        fold_constants: Whether what depends on parameters only is a constant.

    Raises:
        DynamicSizeError: The runs differ in more than sizes.
    """
    dims = [run.dims for run in runs]
    _check_equal_calls(runs)
    calls = [_merge_calls(calls) for calls in zip(*(run.calls for run in runs), strict=True)]
    program = Program(
        dims, calls, [_merge_places(p) for p in zip(*(run.inputs for run in runs), strict=True)],
        [_merge_places(p) for p in zip(*(run.outputs for run in runs), strict=True)], runs[0].output_constants,
        [(_merge_places([place] * len(runs)), name, tensor) for place, name, tensor in runs[0].members],
    )  # fmt: skip
    if not fold_constants:
        program.computed.update(ref.memory for ref, _, _ in program.members)
    _find_computed(program)
    _find_live(program)
    return program


def _check_equal_calls(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs[1:]:
        difference = _difference(first, run)
        if difference:
            raise DynamicSizeError(
                f"export: {difference}, so that a graph of the model would be right for one size only; leave the "
                "dimension out of the dynamic ones, or write the model without a loop or a condition on it"
            )


def _difference(first: Run, run: Run) -> str:
    """Return how the calls of two runs differ; "" if they are the same."""
    sizes, other_sizes = _sizes_text(first.dims), _sizes_text(run.dims)
    for a, b in zip(first.calls, run.calls, strict=False):
        is_same = (a.record.name, a.record.kind) == (b.record.name, b.record.kind)
        if not is_same or len(a.operands) != len(b.operands) or len(a.results) != len(b.results):
            texts = call_text(a.record, a.layer), call_text(b.record, b.layer)
            counts = (f" of {len(a.operands)} operands", f" of {len(b.operands)} operands") if is_same else ("", "")
            return f"with {sizes}, the model calls {texts[0]}{counts[0]}, and with {other_sizes} {texts[1]}{counts[1]}"
    if len(first.calls) != len(run.calls):
        longer = max(first.calls, run.calls, key=len)
        extra = longer[min(len(first.calls), len(run.calls))]
        return (
            f"with {sizes}, the model calls {len(first.calls)} ops, and with {other_sizes} {len(run.calls)}; the first "
            f"further one is {call_text(extra.record, extra.layer)}"
        )
    return ""


def _sizes_text(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in dims.items())


def _merge_calls(calls: Sequence[CapturedCall]) -> Call:
    first = calls[0]
    operands = [_merge_operands(values) for values in zip(*(call.operands for call in calls), strict=True)]
    statics = tuple(_merge_statics(values) for values in zip(*(call.statics for call in calls), strict=True))
    results = [_merge_places(places) for places in zip(*(call.results for call in calls), strict=True)]
    overwritten = [
        (_merge_places([c.place for c in constants]), constants[0])
        for constants in zip(*(call.overwritten for call in calls), strict=False)
    ]
    unstable = {
        position
        for position, constant in first.constants.items()
        if not constant.name and not all(_equals(constant, call.constants.get(position)) for call in calls[1:])
    }
    return Call(first.record, operands, statics, results, first.layer, first.constants, overwritten, unstable)


def _equals(constant: Constant, other: Constant | None) -> bool:
    if other is constant:
        return True
    if other is None or constant.array is None or other.array is None:
        return False
    return constant.array.dtype == other.array.dtype and np.array_equal(
        constant.array, other.array, equal_nan=constant.array.dtype.kind == "f"
    )


def _merge_places(places: Sequence[Place]) -> Ref:
    first = places[0].meta
    return Ref(
        places[0].memory, merge([p.start for p in places]), first.dtype,
        tuple(merge(sizes) for sizes in zip(*(p.meta.shape for p in places), strict=True)),
        tuple(merge(strides) for strides in zip(*(p.meta.strides for p in places), strict=True)), first,
    )  # fmt: skip


def _merge_operands(values: Sequence[object]) -> Ref | Number | None:
    if all(isinstance(value, Place) for value in values):
        return _merge_places(values)  # type: ignore[arg-type]
    return _merge_statics(values)


def _merge_statics(values: Sequence[Static]) -> Static:
    """Merge the values of a static argument or of a number: ints that differ become a `Size`, also inside of tuples."""
    first = values[0]
    if all(type(value) is type(first) and value == first for value in values):
        return first
    if all(isinstance(value, tuple) and len(value) == len(first) for value in values):
        return tuple(_merge_statics(items) for items in zip(*values, strict=True))
    if all(type(value) is int for value in values):
        return merge(values)
    if all(type(value) in (int, float) and float(value).is_integer() for value in values):
        return merge([int(value) for value in values])
    return Varying(tuple(values))


def _has_size(value: Static) -> bool:
    if isinstance(value, tuple):
        return any(_has_size(item) for item in value)
    return isinstance(value, (Size, Varying))


def _find_computed(program: Program) -> None:
    """Note the memories whose contents depend on inputs, sizes or random numbers, or that are written from such."""
    computed = program.computed
    computed.update(ref.memory for ref in program.inputs)
    for call in program.calls:
        is_sized = _has_size(call.statics) or any(isinstance(operand, (Size, Varying)) for operand in call.operands)
        is_sized |= any(_has_size(ref.shape) for ref in call.results)
        draws = call.record.kind == "random" and call.record.name not in _PROGRESSIONS
        if is_sized or draws or any(ref.memory in computed for ref in call.refs()):
            computed.update(ref.memory for ref in call.results)


def _find_live(program: Program) -> None:
    """Note the calls that the outputs may depend on. Whole memories count, so that these are a few too many."""
    live_memories = {ref.memory for ref in program.outputs}
    for index in range(len(program.calls) - 1, -1, -1):
        call = program.calls[index]
        if any(ref.memory in live_memories for ref in call.results):
            program.live.add(index)
            live_memories.update(ref.memory for ref in call.refs())
