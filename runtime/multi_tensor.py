"""Multi-tensor ops: one launch updates lists of tensors in place, as optimizers need.

    update = MultiTensor(registry["sgd_step"])
    update([parameters, gradients], (0.1, 0.0, 1.0))

The table of addresses and the launcher are kept between calls. As long as all tensors keep their layouts and addresses,
a call only compares lists and launches. If only addresses changed (new gradients), the table is written again, without
waiting for the device. `kinds.many` plans the kernels. `multi_reduction.py` reduces many tensors in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from .backends.arguments import Base, Scratch
from .backends.host import HostDriver
from .backends.targets import target_named
from .context import State, _local
from .device import Device, Meta
from .dispatch import call_into
from .dtypes import Array, DType
from .errors import DeviceError, ShapeError
from .kinds.many import BASES, Runs, divide_into_runs, overwritten_operands, plan
from .layout import is_dense
from .records import OpRecord
from .storage import Storage
from .tensor import Tensor

if TYPE_CHECKING:
    from .backends.protocol import Driver, Stream
    from .call_types import Launcher, Memory
    from .dispatch import Plan

__all__ = ["CachedLaunches", "Group", "MultiTensor"]

_VECTOR_BYTES = 16

Argument: TypeAlias = Base | Scratch
"""What a launcher takes besides tensors: the base of an address range, or the table."""


class _WriteEvent(Protocol):
    """pyopencl's event of a queued copy; the status is positive until the copy is done."""

    command_execution_status: int


class _CapturingStream(Protocol):
    """A stream whose work can be captured in a graph; `capture` is that graph, or None."""

    @property
    def capture(self) -> object: ...


class _Table:
    """A table on one device, and its copy on the host, which is reused when no launch may still read it."""

    def __init__(self, driver: Driver, length: int):
        self.length = length
        self.array = np.empty(length, np.int64)
        self.event: _WriteEvent | None = None
        self.shared: Storage | None = driver.adopt(self.array) if isinstance(driver, HostDriver) else None

    @property
    def busy(self) -> bool:
        """True if queued work may still read the host's copy."""
        return self.event is not None and self.event.command_execution_status > 0

    def write(self, driver: Driver, stream: Stream) -> Scratch:
        """Copy the host's copy to the device, in the order of the stream."""
        if self.shared is not None:
            return Scratch(self.shared)
        storage = driver.allocate(self.array.nbytes, stream)
        self.event = getattr(driver, "write_later", driver.write)(storage, 0, self.array, stream)
        return Scratch(storage)


class Group:
    """The tensors of a call that have the same device and dtypes. indices: their positions in the lists."""

    def __init__(self, record: OpRecord, device: Device, lists: Sequence[Sequence[Tensor]], indices: list[int]):
        self.record = record
        self.device = device
        self.driver = device.driver
        self.shares_memory = isinstance(self.driver, HostDriver)
        self.indices = indices
        self.types = [tensors[indices[0]].meta.dtype for tensors in lists]
        self.sizes = [lists[0][i].meta.numel for i in indices]
        self.itemsizes = np.array([t.itemsize for t in self.types], np.int64)[:, None]
        # All parts of a tensor read the same flag.
        if (flag_position := record.detail.get("flag_position")) is not None:
            self.itemsizes[flag_position] = 0
        self.tables: dict[int, list[_Table]] = {}
        self.launchers: dict[tuple[int, bool], Launcher] = {}
        self.tensor_ranges: list[tuple[slice, Runs | None]] = []  # for each launch

    def divide_into_runs(self, sizes: Sequence[int]) -> Runs:
        """Divide tensors of these sizes into rows of the table."""
        return divide_into_runs(self.record, self.types, self.device, sizes)

    def launcher(self, runs: Runs, is_aligned: bool, largest: int) -> Launcher:
        """Return the launcher of the kernel that takes the table; `largest` is the size of the largest tensor."""
        step = plan(self.record, self.types, self.device, runs, is_aligned, largest)
        return self.driver.launcher((step,), ())

    def launches(self, lists: Sequence[Sequence[Tensor]], stream: Stream) -> list[tuple[Launcher, list[Argument]]]:
        """Return (launcher, buffers) of each launch, for the current addresses. They hold no tensors."""
        group_lists = [[tensors[i] for i in self.indices] for tensors in lists]
        launches: list[tuple[Launcher, list[Argument]]] = []
        if target_named(self.driver.target).follows_addresses:
            starts = np.array(
                [[(t.storage.buffer or 0) + t.start for t in tensors] for tensors in group_lists], np.int64
            )
            is_aligned = not bool((starts % _VECTOR_BYTES).any())
            launch, table = self._launch(0, slice(0, len(self.indices)), starts, is_aligned, stream)
            launches.append((launch, [table]))
            return launches
        if self.shares_memory:  # host memory is one buffer, at address 0
            addresses = np.array([[t.storage.buffer + t.start for t in tensors] for tensors in group_lists], np.int64)
            launch, table = self._launch(0, slice(0, len(self.indices)), addresses, False, stream)
            return [(launch, [*[Base(0)] * BASES, table])]
        for number, (tensor_range, buffers) in enumerate(self._split(group_lists)):
            # Device buffers have no common address space: an address is a buffer's number and an offset of 56 bits.
            buffer_numbers = {id(b): n for n, b in enumerate(buffers)}
            encoded_addresses = [
                [buffer_numbers[id(t.storage.buffer)] << 56 | t.start for t in tensors[tensor_range]]
                for tensors in group_lists
            ]
            launch, table = self._launch(number, tensor_range, np.array(encoded_addresses, np.int64), False, stream)
            bases = [Base(b) for b in buffers]
            bases += [bases[0]] * (BASES - len(bases))
            launches.append((launch, [*bases, table]))
        return launches

    def _split(self, group_lists: Sequence[Sequence[Tensor]]) -> list[tuple[slice, list[Memory]]]:
        """Split the tensors into ranges that lie in at most `BASES` buffers; return the ranges and their buffers."""
        buffers: dict[int, Memory] = {}
        for tensors in group_lists:
            for t in tensors:
                buffers[id(t.storage.buffer)] = t.storage.buffer
        count = len(self.indices)
        if len(buffers) <= BASES:
            return [(slice(0, count), list(buffers.values()))]
        ranges = []
        start = 0
        range_buffers: dict[int, Memory] = {}
        for i in range(count):
            tensor_buffers = {id(tensors[i].storage.buffer): tensors[i].storage.buffer for tensors in group_lists}
            if len(range_buffers.keys() | tensor_buffers.keys()) > BASES:
                ranges.append((slice(start, i), list(range_buffers.values())))
                start, range_buffers = i, {}
            range_buffers.update(tensor_buffers)
        return [*ranges, (slice(start, count), list(range_buffers.values()))]

    def _launch(
        self, number: int, tensor_range: slice, starts: Array, is_aligned: bool, stream: Stream
    ) -> tuple[Launcher, Scratch]:
        """Write the table of a range of tensors; return the launcher and the table."""
        while len(self.tensor_ranges) <= number:
            self.tensor_ranges.append((slice(0, 0), None))
        if self.tensor_ranges[number][0] != tensor_range:
            self.tensor_ranges[number] = (tensor_range, self.divide_into_runs(self.sizes[tensor_range]))
            self.launchers = {k: v for k, v in self.launchers.items() if k[0] != number}
        runs = self.tensor_ranges[number][1]
        assert runs is not None
        if (number, is_aligned) not in self.launchers:
            self.launchers[number, is_aligned] = self.launcher(runs, is_aligned, max(self.sizes[tensor_range]))
        header, rows = len(runs.heads), len(runs.tensor)
        table = self._table(number, header + rows * (1 + len(self.types)))
        table.array[:header] = runs.heads
        cells = table.array[header : header + rows * (1 + len(self.types))].reshape(rows, -1)
        cells[:, 0] = runs.count
        cells[:, 1:] = (starts[:, runs.tensor] + runs.start * self.itemsizes).T
        return self.launchers[number, is_aligned], table.write(self.driver, stream)

    def _table(self, number: int, length: int) -> _Table:
        """Return a table for the launch with this number, one that no earlier launch may still read."""
        tables = [t for t in self.tables.get(number, ()) if t.length >= length or t.busy]
        for table in tables:
            if table.length >= length and not table.busy:
                break
        else:
            table = _Table(self.driver, length)
            tables.append(table)
        self.tables[number] = tables
        return table


class CachedLaunches:
    """The launches of an op's last call on many tensors, valid while tensors keep their layouts and addresses.

    Attributes:
        record: The op.
        over: Positions of the operands that results overwrite.
        flag_position: Position of the operand with one element for all tensors, or None.
    """

    group_type = Group

    def __init__(self, record: OpRecord):
        self.record = record
        self.over: tuple[int, ...] = ()
        self.flag_position: int | None = None
        self._metas: list[Meta] = []
        self._buffers: list[Memory] = []
        self._starts: list[int] = []
        self._streams: dict[Device, Stream] | None = None
        self._captures: list[tuple[_CapturingStream, object]] = []
        self._plans: dict[tuple[object, ...], Plan] | None = None
        self._groups: list[Group] = []
        self._single_tensors: list[int] = []
        self._written: list[int] = []
        self._launches: list[tuple[Stream, Launcher, list[Argument], list[int]]] = []
        self._launch_groups: list[tuple[Group, int]] = []  # of each launch, and its number in the group

    def follow(self, lists: Sequence[list[Tensor]], state: State) -> list[Tensor]:
        """Make the launches for these tensors, unless the last call had them. Return all tensors in one list."""
        all_tensors = [t for tensors in lists for t in tensors]
        storages = [t.storage for t in all_tensors]
        metas = [t.meta for t in all_tensors]
        if metas != self._metas or self._plans is not state.plans:  # new layouts, another thread, or cleared plans
            self._arrange(lists, metas)
            self._plans = state.plans
            self._buffers = []
        starts = [t.start for t in all_tensors]
        if (
            starts != self._starts
            or [s.buffer for s in storages] != self._buffers
            or self._streams is not state.streams
            or any(stream.capture is not capture for stream, capture in self._captures)
        ):
            self._write_tables(lists, storages, state)
            self._starts = starts
        return all_tensors

    def _write_tables(self, lists: Sequence[list[Tensor]], storages: list[Storage], state: State) -> None:
        """Write the tables for the current addresses of the tensors."""
        self._streams = state.streams
        self._launches, self._launch_groups, self._captures = [], [], []
        for group in self._groups:
            stream = (state.streams or {}).get(group.device) or group.driver.default_stream
            if hasattr(stream, "capture"):  # a table written during a capture is valid when the graph runs
                self._captures.append((stream, stream.capture))  # type: ignore[arg-type]
            reached_tensors: list[int] = []
            if target_named(group.driver.target).follows_addresses and getattr(stream, "capture", self) is not None:
                # The tensors whose addresses the table contains: the interpreter reads them, a graph keeps them alive.
                reached_tensors = [k * len(lists[0]) + i for k in range(len(lists)) for i in group.indices]
            launches = group.launches(lists, stream)
            self._launches += [(stream, *launch, reached_tensors) for launch in launches]
            self._launch_groups += [(group, number) for number in range(len(launches))]
        self._buffers = [s.buffer for s in storages]

    def _arrange(self, lists: Sequence[Sequence[Tensor]], metas: list[Meta]) -> None:
        """Sort tensors into groups by device and dtypes. Tensors with gaps get calls of their own."""
        groups: dict[tuple[Device, tuple[DType, ...]], list[int]] = {}
        self._single_tensors = []
        for i, layouts in enumerate(zip(*(map(_meta, tensors) for tensors in lists), strict=True)):
            first = layouts[0]
            for k, other in enumerate(layouts):
                if other.device is not first.device:
                    self._refuse(DeviceError, "are on different devices", layouts)
                if other.numel != 1 if k == self.flag_position else other.shape != first.shape:
                    self._refuse(ShapeError, "have different shapes", layouts)
            if not first.numel:
                continue
            if not is_dense(first) or not all(
                m is first or k == self.flag_position or _have_same_order(m, first) for k, m in enumerate(layouts)
            ):
                self._single_tensors.append(i)
                continue
            groups.setdefault((first.device, tuple([m.dtype for m in layouts])), []).append(i)
        self._groups = [self.group_type(self.record, device, lists, indices) for (device, _), indices in groups.items()]
        count = len(lists[0])
        self._written = [k * count + i for k in self.over for indices in groups.values() for i in indices]
        self._metas = metas

    def _refuse(self, error_type: type[Exception], problem: str, layouts: Sequence[Meta]) -> None:
        """Raise an error about the tensors at one index of the lists."""
        layouts_text = ", ".join(f"{m.dtype.name}{list(m.shape)} on {m.device}" for m in layouts)
        raise error_type(f"{self.record.name}: a parameter, its gradient and its state {problem}: {layouts_text}")


class MultiTensor(CachedLaunches):
    """A multi-tensor op, with the launchers and tables of its last call. Threads must not call it at the same time."""

    def __init__(self, record: OpRecord):
        super().__init__(record)
        self.over = overwritten_operands(record)
        self.flag_position = record.detail.get("flag_position")

    def __call__(self, lists: Sequence[list[Tensor]], numbers: Sequence[float]) -> None:
        """Run the op on all tensors. The results overwrite operands, whose versions go up.

        Args:
            lists: A list of tensors for each tensor operand, all of the same length. Tensors with the same index have
                the same shape; a flag has one element, and all indices may share it.
            numbers: The number operands.

        Raises:
            ShapeError: Tensors with the same index have different shapes.
            DeviceError: Tensors with the same index are on different devices.
        """
        state = _local.state
        if state.mode is not None and state.has_active_mode():
            self._update_singly(range(len(lists[0])), lists, numbers)
            return
        all_tensors = self.follow(lists, state)
        for stream, launch, buffers, reached_tensors in self._launches:
            launch(
                [*buffers, *[all_tensors[i] for i in reached_tensors]] if reached_tensors else buffers, numbers, stream
            )
        for i in self._written:
            all_tensors[i].storage.version += 1
        if self._single_tensors:
            self._update_singly(self._single_tensors, lists, numbers)

    def _update_singly(
        self, indices: Iterable[int], lists: Sequence[Sequence[Tensor]], numbers: Sequence[float]
    ) -> None:
        """Run one call per tensor, for layouts with gaps, and for modes that must see every call."""
        for i in indices:
            operands = [tensors[i] for tensors in lists]
            if not operands[0].meta.numel:
                continue
            call_into(self.record, (*operands, *numbers), (), [operands[k] for k in self.over], in_place=False)


def _meta(tensor: Tensor) -> Meta:
    return tensor.meta


def _have_same_order(a: Meta, b: Meta) -> bool:
    """Return True if two layouts have the same order of elements. Strides of dimensions of size 1 do not count."""
    return all(s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True) if n != 1)
