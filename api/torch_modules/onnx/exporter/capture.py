"""Record the calls that a model makes.

`Capture` is a mode of `dispatch`: every op that the model runs passes through it, and it notes where the operands and
results lie in memory. A tensor is identified by its `Place`, because several tensors can be views of one memory. Serial
numbers of memories follow the order of their first use, so that equal runs have equal numbers.

What does not depend on the inputs is a constant. Its value is saved with the first call that reads it, because a later
call may overwrite it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from ...runtime import host_data
from ...runtime.context import state
from ...runtime.device import Meta
from ...runtime.dtypes import Array
from ...runtime.modes import Mode
from ...runtime.records import OpRecord
from ...runtime.tensor import Tensor

if TYPE_CHECKING:
    from ...nn.module import Module
    from ...runtime.call_types import CallResult, Statics
    from ...runtime.storage import Storage

__all__ = ["Capture", "CapturedCall", "Constant", "Operand", "Place", "flat_tensors"]

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the elements of a tensor are.

    Attributes:
        memory: Serial number of the storage.
        start: Offset of the first element in the storage, in bytes.
        meta: Dtype, shape and strides.
    """

    memory: int
    start: int
    meta: Meta


@dataclass(slots=True, eq=False)
class Constant:
    """A tensor that does not depend on the inputs.

    Attributes:
        place: Where it was.
        tensor: The model's parameter or buffer, or a view of it; None for another tensor.
        array: The values of another tensor.
        name: Path of the parameter or buffer in the model; empty for another tensor.
    """

    place: Place
    tensor: Tensor | None = None
    array: Array | None = None
    name: str = ""

    def values(self) -> Array:
        """Return the values; bfloat16 as float32."""
        if self.array is None:
            assert self.tensor is not None
            return host_data.host_array(self.tensor.detach())
        return self.array


Operand: TypeAlias = "Place | bool | int | float | None"


@dataclass(slots=True, eq=False)
class CapturedCall:
    """One call.

    Attributes:
        operands: A place for each tensor.
        results: Places of the results. Calls that write to existing tensors have the places of those.
        layer: Path of the module whose `forward` made the call.
        constants: The operands that do not depend on the inputs, by position.
        overwritten: Constants with the old contents of tensors that the call writes, and that no call had written.
    """

    record: OpRecord
    operands: list[Operand]
    statics: Statics
    results: list[Place]
    layer: str
    constants: dict[int, Constant] = field(default_factory=dict)
    overwritten: list[Constant] = field(default_factory=list)


class Capture(Mode):
    """Records the calls of the code in its `with` block. Other modes that are active do not see the calls.

    Args:
        model: The module whose parameters, buffers and layers have names.

    Attributes:
        calls: The calls, in order.
        members: Place, path and tensor of each parameter and buffer.
        host_reads: Layers that read values which depend on the inputs as Python numbers or arrays.
    """

    def __init__(self, model: Module):
        self.calls: list[CapturedCall] = []
        self.host_reads: list[str] = []
        self._layers = [""]
        self._layer_names = {id(module): name for name, module in model.named_modules()}
        self.members: list[tuple[Place, str, Tensor]] = []
        self._member_places: dict[int, list[tuple[Place, str]]] = {}  # parameters and buffers, by memory
        self._memories: dict[int, int] = {}  # serial numbers, by id of a living storage
        self._watches: list[weakref.ref[Storage]] = []
        self._count = 0
        self._varying: set[int] = set()  # memories whose contents depend on the inputs
        self._write_counts: dict[int, int] = {}  # of recorded calls, by memory
        self._readable: set[int] = set()  # varying memories that the package itself reads on the host
        self._constants: dict[tuple[Place, int, int], Constant] = {}
        self._is_paused = False
        for names in (model.named_parameters(), model.named_buffers()):
            for name, tensor in names:
                place = self.place(tensor)
                self.members.append((place, name, tensor))
                self._member_places.setdefault(place.memory, []).append((place, name))

    def __enter__(self) -> Capture:
        from ...nn._hook_tables import global_forward, global_forward_pre  # lazy: start-up

        self._previous_mode = state().mode
        super().__enter__()
        self._below = None
        self._handles = [
            global_forward_pre.add(self._enter_layer, True),
            global_forward.add(self._leave_layer, False, False, True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        state().mode = self._previous_mode

    def add_input(self, tensor: Tensor) -> Place:
        """Note that `tensor` is an input of the graph. Returns its place."""
        place = self.place(tensor)
        self._varying.add(place.memory)
        return place

    def place(self, tensor: Tensor) -> Place:
        """Return the place of a tensor."""
        return Place(self._memory(tensor.storage), tensor.start - tensor.storage.start, tensor.meta)

    def constant(self, tensor: Tensor) -> Constant | None:
        """Return the value that a tensor has now, or None if it depends on the inputs."""
        place = self.place(tensor)
        if place.memory in self._varying:
            return None
        # Some calls that fill new memory leave its version as it was.
        key = (place, tensor.storage.version, self._write_counts.get(place.memory, 0))
        if key not in self._constants:
            self._constants[key] = self._new_constant(place, tensor)
        return self._constants[key]

    def call(
        self, record: OpRecord, operands: Sequence[object], statics: Statics, outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> CallResult:  # fmt: skip
        """Run the call and record it."""
        if self._is_paused:
            return self.proceed(record, operands, statics, outs, in_place)
        call = self._describe(record, operands, statics)
        for out in outs or ():
            self._save_overwritten(call, out)
        result = self.proceed(record, operands, statics, outs, in_place)
        self._finish(call, [result] if isinstance(result, Tensor) else list(result))
        return result

    def composite(
        self, record: OpRecord, operands: Sequence[object], statics: Statics, compute: Callable[[], _Result]
    ) -> _Result:
        """Run a function of several ops, and record it as one call."""
        if self._is_paused:
            return compute()
        call = self._describe(record, operands, statics)
        self._is_paused = True
        try:
            result = compute()
        finally:
            self._is_paused = False
        results = flat_tensors(result)
        self._finish(call, results)
        self._readable.update(self._memory(tensor.storage) for tensor in results if tensor.meta.dtype.kind == "i")
        return result

    def read_on_host(self, tensor: Tensor) -> None:
        """Note that the model reads values that depend on its inputs, which a graph cannot do."""
        memory = self._memory(tensor.storage)
        if not self._is_paused and memory in self._varying and memory not in self._readable:
            self.host_reads.append(self._layers[-1])

    def _describe(self, record: OpRecord, operands: Sequence[object], statics: Statics) -> CapturedCall:
        places: list[Operand] = []
        constants: dict[int, Constant] = {}
        for position, operand in enumerate(operands):
            if isinstance(operand, Tensor):
                places.append(self.place(operand))
                constant = self.constant(operand)
                if constant is not None:
                    constants[position] = constant
            else:
                places.append(operand.item() if isinstance(operand, np.generic) else operand)  # type: ignore[arg-type]
        return CapturedCall(record, places, statics, [], self._layers[-1], constants)

    def _save_overwritten(self, call: CapturedCall, out: Tensor) -> None:
        place = self.place(out)
        if place.memory in self._write_counts or place.memory in self._varying:
            return
        for known in self._constants.values():  # the call changes the model: save the values before it
            if known.place.memory == place.memory and known.array is None:
                known.array, known.tensor = known.values().copy(), None
        if place.memory not in self._member_places and out.meta.contiguous and out.meta.nbytes == out.storage.nbytes:
            return  # new memory, which the call fills
        constant = self.constant(out if out.extra is None or out.extra.base is None else out.extra.base)
        if constant is not None:
            call.overwritten.append(constant)

    def _finish(self, call: CapturedCall, results: Sequence[Tensor]) -> None:
        call.results = [self.place(tensor) for tensor in results]
        operand_memories = {operand.memory for operand in call.operands if isinstance(operand, Place)}
        for place in call.results:
            if call.record.kind != "view":
                self._write_counts[place.memory] = self._write_counts.get(place.memory, 0) + 1
            if operand_memories & self._varying:
                self._varying.add(place.memory)
        self.calls.append(call)

    def _memory(self, storage: Storage) -> int:
        key = id(storage)
        if key not in self._memories:
            self._memories[key] = self._count
            self._count += 1
            self._watches.append(weakref.ref(storage, partial(self._forget, key)))
        return self._memories[key]

    def _forget(self, key: int, _: object) -> None:
        self._memories.pop(key, None)

    def _new_constant(self, place: Place, tensor: Tensor) -> Constant:
        view = Tensor(tensor.storage, tensor.meta, tensor.start)
        end = place.start + place.meta.nbytes
        for member, name in self._member_places.get(place.memory, ()):
            is_written = place.memory in self._write_counts
            if member.start <= place.start and end <= member.start + member.meta.nbytes and not is_written:
                return Constant(place, view, None, name)
        thread_state = state()
        mode, thread_state.mode = thread_state.mode, None
        try:
            array = np.array(host_data.host_array(view))
        finally:
            thread_state.mode = mode
        return Constant(place, None, array)

    def _enter_layer(self, module: Module, _: object) -> None:
        self._layers.append(self._layer_names.get(id(module), self._layers[-1]))

    def _leave_layer(self, *_: object) -> None:
        self._layers.pop()


def flat_tensors(value: object) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in flat_tensors(item)]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in flat_tensors(item)]
    return []
