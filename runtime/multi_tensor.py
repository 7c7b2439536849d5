"""One kernel for many tensors: a multi-tensor op over lists of tensors, written in place.

    update = MultiTensor(registry["sgd_step"])
    update([parameters, gradients], (0.1, 0.0, 1.0))

What a launch needs (the table of places, the bound kernel) is kept from call to call and looked over in each: as long
as every tensor has the layout, the buffer and the place it had, a call is a comparison of lists and a launch. Where
only places changed (new gradients), the table is written anew; the host never waits for the device to do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .backends.arguments import Base, Scratch
from .backends.host import HostDriver
from .context import _local
from .device import Device, Meta
from .dispatch import call_into
from .errors import DeviceError, ShapeError
from .kinds.many import BASES, plan, share
from .layout import dense
from .records import OpRecord
from .storage import Storage
from .tensor import Tensor

__all__ = ["MultiTensor"]

_WIDE = 16


class _Table:
    """A table's memory on one device, and the host's copy of it, used again when no launch may still read it."""

    def __init__(self, driver: Any, length: int):
        self.length = length
        self.array = np.empty(length, np.int64)
        self.event: Any = None
        self.shared: Storage | None = driver.adopt(self.array) if isinstance(driver, HostDriver) else None

    @property
    def busy(self) -> bool:
        """Whether work that was queued may still read the host's memory."""
        return self.event is not None and self.event.command_execution_status > 0

    def write(self, driver: Any, stream: Any) -> Scratch:
        """Bring the host's copy to the device, in the stream's order."""
        if self.shared is not None:
            return Scratch(self.shared)
        storage = driver.allocate(self.array.nbytes, stream)
        self.event = getattr(driver, "write_later", driver.write)(storage, 0, self.array, stream)
        return Scratch(storage)


class _Group:
    """Tensors of equal device and dtypes. indices: which of the call's; shared: how their elements are shared out."""

    def __init__(self, record: OpRecord, device: Device, lists: Sequence[Sequence[Tensor]], indices: list[int]):
        self.record = record
        self.device = device
        self.driver: Any = device.driver
        self.shares_memory = isinstance(self.driver, HostDriver)
        self.indices = indices
        self.types = [tensors[indices[0]].meta.dtype for tensors in lists]
        self.sizes = [lists[0][i].meta.numel for i in indices]
        self.itemsizes = np.array([t.itemsize for t in self.types], np.int64)[:, None]
        if (flag := record.detail.get("flag")) is not None:  # every run of a tensor has the same element
            self.itemsizes[flag] = 0
        self.tables: dict[int, list[_Table]] = {}
        self.launchers: dict[tuple[int, bool], Any] = {}
        self.parts: list[tuple[slice, Any]] = []

    def launches(self, lists: Sequence[Sequence[Tensor]], stream: Any) -> list[tuple[Any, list[Any]]]:
        """(launcher, its buffers) of every launch, for tensors where they are now. None holds a tensor."""
        chosen = [[tensors[i] for i in self.indices] for tensors in lists]
        found: list[tuple[Any, list[Any]]] = []
        if self.driver.target == "triton":
            starts = np.array([[(t.storage.buffer or 0) + t.start for t in tensors] for tensors in chosen], np.int64)
            wide = not bool((starts % _WIDE).any())
            launch, table = self._launch(0, slice(0, len(self.indices)), starts, wide, stream)
            found.append((launch, [table]))
            return found
        if self.shares_memory:  # with the host: one buffer, at address 0
            addresses = np.array([[t.storage.buffer + t.start for t in tensors] for tensors in chosen], np.int64)
            launch, table = self._launch(0, slice(0, len(self.indices)), addresses, False, stream)
            return [(launch, [*[Base(0)] * BASES, table])]
        for number, (part, buffers) in enumerate(self._split(chosen)):
            numbers = {id(b): n for n, b in enumerate(buffers)}
            places = [[numbers[id(t.storage.buffer)] << 56 | t.start for t in tensors[part]] for tensors in chosen]
            launch, table = self._launch(number, part, np.array(places, np.int64), False, stream)
            bases = [Base(b) for b in buffers]
            bases += [bases[0]] * (BASES - len(bases))
            found.append((launch, [*bases, table]))
        return found

    def _split(self, chosen: Sequence[Sequence[Tensor]]) -> list[tuple[slice, list[Any]]]:
        """Ranges of tensors that lie in no more buffers than a launch has, with those buffers."""
        everything: dict[int, Any] = {}
        for tensors in chosen:
            for t in tensors:
                everything[id(t.storage.buffer)] = t.storage.buffer
        count = len(self.indices)
        if len(everything) <= BASES:
            return [(slice(0, count), list(everything.values()))]
        found = []
        begin = 0
        held: dict[int, Any] = {}
        for i in range(count):
            own = {id(tensors[i].storage.buffer): tensors[i].storage.buffer for tensors in chosen}
            if len(held.keys() | own.keys()) > BASES:
                found.append((slice(begin, i), list(held.values())))
                begin, held = i, {}
            held.update(own)
        return [*found, (slice(begin, count), list(held.values()))]

    def _launch(self, number: int, part: slice, starts: Any, wide: bool, stream: Any) -> tuple[Any, Scratch]:
        """The launcher of tensors `part`, and its table, written."""
        while len(self.parts) <= number:
            self.parts.append((slice(0, 0), None))
        if self.parts[number][0] != part:
            self.parts[number] = part, share(self.record, self.types, self.device, self.sizes[part])
            self.launchers = {k: v for k, v in self.launchers.items() if k[0] != number}
        shared = self.parts[number][1]
        if (number, wide) not in self.launchers:
            step = plan(self.record, self.types, self.device, shared, wide, max(self.sizes[part]))
            self.launchers[number, wide] = self.driver.launcher((step,), ())
        heads, rows = len(shared.heads), len(shared.tensor)
        table = self._table(number, heads + rows * (1 + len(self.types)))
        table.array[:heads] = shared.heads
        cells = table.array[heads : heads + rows * (1 + len(self.types))].reshape(rows, -1)
        cells[:, 0] = shared.count
        cells[:, 1:] = (starts[:, shared.tensor] + shared.start * self.itemsizes).T
        return self.launchers[number, wide], table.write(self.driver, stream)

    def _table(self, number: int, length: int) -> _Table:
        """A table for the launch of this number, whose last one is not wanted any more, but perhaps being read."""
        kept = [t for t in self.tables.get(number, ()) if t.length >= length or t.busy]
        for table in kept:
            if table.length >= length and not table.busy:
                break
        else:
            table = _Table(self.driver, length)
            kept.append(table)
        self.tables[number] = kept
        return table


class MultiTensor:
    """A multi-tensor op and what its last call left behind. Not to be shared by threads that call it at once."""

    def __init__(self, record: OpRecord):
        self.record = record
        self.over: tuple[int, ...] = record.detail["over"]
        self.flag: int | None = record.detail.get("flag")
        self._metas: list[Meta] = []
        self._buffers: list[Any] = []
        self._starts: list[int] = []
        self._streams: Any = None
        self._captures: list[tuple[Any, Any]] = []
        self._plans: Any = None
        self._groups: list[_Group] = []
        self._alone: list[int] = []
        self._written: list[int] = []
        self._launches: list[tuple[Any, Any, list[Any], list[int]]] = []

    def __call__(self, lists: Sequence[list[Tensor]], numbers: Sequence[float]) -> None:
        """Update in place: `lists` has a list of tensors for each tensor operand, all as long, `numbers` the rest.

        Tensors of one index have one shape (a flag has one element, and may be one for all); results are written over
        operands, and their versions go up.
        Raises `ShapeError` or `DeviceError` where tensors of one index do not belong together.
        """
        state = _local.state
        if state.mode is not None and state.watched():
            self._singly(range(len(lists[0])), lists, numbers)
            return
        everything = [t for tensors in lists for t in tensors]
        storages = [t.storage for t in everything]
        metas = [t.meta for t in everything]
        if metas != self._metas or self._plans is not state.plans:  # another thread's plans, or forgotten ones
            self._arrange(lists, metas)
            self._plans = state.plans
            self._buffers = []
        starts = [t.start for t in everything]
        if (
            starts != self._starts
            or [s.buffer for s in storages] != self._buffers
            or self._streams is not state.streams
            or any(stream.capture is not capture for stream, capture in self._captures)
        ):
            self._place(lists, storages, state)
            self._starts = starts
        for stream, launch, bound, reached in self._launches:
            launch([*bound, *[everything[i] for i in reached]] if reached else bound, numbers, stream)
        for i in self._written:
            storages[i].version += 1
        if self._alone:
            self._singly(self._alone, lists, numbers)

    def _place(self, lists: Sequence[list[Tensor]], storages: list[Storage], state: Any) -> None:
        """Write the tables of where tensors are now."""
        self._streams = state.streams
        self._launches, self._captures = [], []
        for group in self._groups:
            stream = (state.streams or {}).get(group.device) or group.driver.default_stream
            if hasattr(stream, "capture"):  # a table that is written in a graph is there when the graph runs
                self._captures.append((stream, stream.capture))
            reached: list[int] = []
            if group.driver.target == "triton" and getattr(stream, "capture", self) is not None:
                # Which addresses in the table lead to: the interpreter looks at it, a graph keeps it.
                reached = [k * len(lists[0]) + i for k in range(len(lists)) for i in group.indices]
            self._launches += [(stream, *launch, reached) for launch in group.launches(lists, stream)]
        self._buffers = [s.buffer for s in storages]

    def _arrange(self, lists: Sequence[Sequence[Tensor]], metas: list[Meta]) -> None:
        """Sort tensors into groups by device and dtypes, apart from those that are no single run of elements."""
        groups: dict[Any, list[int]] = {}
        self._alone = []
        for i, layouts in enumerate(zip(*(map(_meta, tensors) for tensors in lists), strict=True)):
            first = layouts[0]
            for k, other in enumerate(layouts):
                if other.device is not first.device:
                    self._refuse(DeviceError, "are on different devices", layouts)
                if other.numel != 1 if k == self.flag else other.shape != first.shape:
                    self._refuse(ShapeError, "have different shapes", layouts)
            if not first.numel:
                continue
            if not dense(first) or not all(
                m is first or k == self.flag or _alike(m, first) for k, m in enumerate(layouts)
            ):
                self._alone.append(i)
                continue
            groups.setdefault((first.device, *[m.dtype for m in layouts]), []).append(i)
        self._groups = [_Group(self.record, key[0], lists, indices) for key, indices in groups.items()]
        count = len(lists[0])
        self._written = [k * count + i for k in self.over for indices in groups.values() for i in indices]
        self._metas = metas

    def _refuse(self, kind: type[Exception], what: str, layouts: Sequence[Meta]) -> None:
        shown = ", ".join(f"{m.dtype.name}{list(m.shape)} on {m.device}" for m in layouts)
        raise kind(f"{self.record.name}: a parameter, its gradient and its state {what}: {shown}")

    def _singly(self, indices: Any, lists: Sequence[Sequence[Tensor]], numbers: Sequence[float]) -> None:
        """One call a tensor: for layouts with gaps, and where a mode wants to see every call."""
        for i in indices:
            operands = [tensors[i] for tensors in lists]
            if not operands[0].meta.numel:
                continue
            call_into(self.record, (*operands, *numbers), (), [operands[k] for k in self.over], in_place=False)


def _meta(tensor: Tensor) -> Meta:
    return tensor.meta


def _alike(a: Meta, b: Meta) -> bool:
    """Whether elements of one index lie in one order; strides along dimensions of one element do not count."""
    return all(s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True) if n != 1)
