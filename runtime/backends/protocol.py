"""What a backend owes the runtime. One file implements it; nothing above this line knows a driver.

    Driver       an opened device: its capabilities, memory, streams, and launchers for planned steps
    Stream       an order of work on that device
    Event        a point in that order
    Capabilities what schedules are chosen by
    Step         one kernel launch as a kind planned it: pure data, no driver objects

A kind's planner (`runtime/kinds/`) turns layouts into `Step`s; the driver turns a list of steps into a function
`run(tensors, scalars)` for the calling thread, which sets arguments and enqueues. That function is the hot path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from ..device import Device
    from ..pool import Budget, Pool
    from ..storage import Storage

__all__ = ["Capabilities", "Driver", "Event", "Instance", "Slot", "Step", "Stream"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What schedules depend on. `lanes` is how many 32-bit elements a vector of this device holds.

    `style` is `cpu` (explicit vectors, one work-item a run of elements, no local memory), `gpu` (one work-item an
    element, work-group trees) or `triton` (a program a block). `builtins`: the compiler inlines OpenCL's math
    functions. `optimize`: whether kernels are optimised; without it they are built in half of the time or less, which
    is what tests of other devices' schedules want. `stream`, `stream_rows`: bytes of a result from which a CPU's stores
    bypass caches, and those of softmax and its kind. `ahead`: whether elementwise kernels on CPUs ask for operands
    before they read them. `registers`: vectors of `lanes` elements that a CPU's registers hold, 32 or 16.
    For Triton: `sm` is the architecture (90), `cores` the multiprocessors, `local_memory` the shared memory that a
    block may have, `block` the elements that a program of an elementwise kernel takes.
    """

    style: str
    cores: int
    lanes: int = 16
    fp64: bool = True
    fp16: bool = False
    max_group: int = 4096
    local_memory: int = 64 * 1024
    alignment: int = 64
    builtins: bool = False
    optimize: bool = True
    memory: int = 0
    sm: int = 0
    block: int = 1024
    stream: int = 8 << 20
    stream_rows: int = 32 << 20
    ahead: bool = True
    registers: int = 32


@dataclass(frozen=True, slots=True)
class Slot:
    """How one buffer's elements are stored (a dtype's name) and read: `value`, `mask`, `index` or `raw`."""

    dtype: str
    type: str = "value"


@dataclass(frozen=True, slots=True)
class Instance:
    """One kernel of one text with its types fixed: what is compiled, and the key of what was.

    text: kernel source, generic in dtype. entry: the kernel in it. element: the compute type in OpenCL C (`float`).
    lanes: width of the vector type `V`. slots: the buffers in order. defines: macros (name, value); for Triton the
    kernel's constants. functions: math functions the text calls. name: of the op, for errors.
    pointers: how many buffers the kernel takes, where that is not one a slot.
    """

    name: str
    text: str
    entry: str
    element: str
    lanes: int
    slots: tuple[Slot, ...]
    defines: tuple[tuple[str, str | int | float], ...] = ()
    functions: tuple[str, ...] = ()
    pointers: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One launch. `buffers` are positions among inputs + outputs + scratch; `scalars` among the call's numbers.

    geometry: what depends on shapes only: the bytes of a struct, or for Triton one integer or tuple of integers a
    parameter. global_size: work-items, or for Triton programs.
    work: by which a CPU device chooses between the calling thread and its workers: elements touched, if one takes a
    core half a nanosecond, in proportion if not.
    integers: positions of scalars that are 64-bit integers whatever the compute type is (seeds, offsets, counts).
    reaches: the kernel follows addresses in a table to tensors that are given behind `buffers`.
    """

    instance: Instance
    buffers: tuple[int, ...]
    geometry: bytes | tuple[int | tuple[int, ...], ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    work: int
    scalars: tuple[int, ...] = ()
    integers: tuple[int, ...] = ()
    reaches: bool = False


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: Event) -> float: ...


class Stream(Protocol):
    """An in-order queue of work with a memory pool of its own."""

    pool: Pool

    def synchronize(self) -> None: ...
    def record_event(self, event: Event | None = None) -> Event: ...
    def wait_event(self, event: Event) -> None: ...
    def query(self) -> bool: ...


class Driver(Protocol):
    """An opened device."""

    device: Device
    target: str
    name: str
    budget: Budget

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def default_stream(self) -> Any: ...

    def new_stream(self) -> Any: ...
    def new_event(self, timing: bool) -> Any: ...
    def launcher(
        self, steps: Sequence[Step], scratch: Sequence[int]
    ) -> Callable[[list[Any], Sequence[Any], Any], None]: ...
    def allocate(self, nbytes: int, stream: Any) -> Storage: ...
    def adopt(self, array: np.ndarray[Any, Any]) -> Storage: ...
    def retire(self, owner: Any, buffer: Any) -> None: ...
    def write(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any) -> None: ...
    def read(self, storage: Storage, offset: int, array: np.ndarray[Any, Any], stream: Any) -> None: ...
    def host_view(self, storage: Storage) -> np.ndarray[Any, Any] | None: ...
    def synchronize(self) -> None: ...
    def build(self, instances: Sequence[Instance]) -> int: ...
