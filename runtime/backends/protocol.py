"""The interface between backends and the rest of the runtime, which knows no driver beyond it.

    Driver       an opened device: its capabilities, memory, streams, and launchers for planned steps
    Stream       an in-order queue of work on that device
    Event        a point in a stream
    Capabilities the device properties by which schedules are chosen
    Step         one kernel launch as a kind planned it: plain data, no driver objects

A kind's planner (`runtime/kinds/`) turns layouts into `Step`s. The driver turns a list of steps into a function
`run(tensors, scalars, stream)` for the calling thread, which sets arguments and enqueues: the hot path.

Streams and events are used with the driver that created them. Methods that take one narrow it to the driver's own
class by `assert isinstance`. Launchers are called too often for that; hence their type `Callable[..., None]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..dtypes import Array
from .styles import Style, style_named

if TYPE_CHECKING:
    from ..device import Device
    from ..pool import Budget, Pool
    from ..storage import Storage

__all__ = ["MISS_WORD", "Capabilities", "Driver", "Event", "Instance", "Slot", "Step", "Stream"]

MISS_WORD = -1  # in place of a scratch buffer's size: the device's miss word (`arguments.MissWord`)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The device properties on which schedules depend.

    style: name of a style of `styles`: `cpu` (explicit vectors, one work-item per run of elements, no local memory),
        `gpu` (one work-item per element, tree reductions in work-groups) or `triton` (one program per block).
    cores: CPU cores, compute units, or for Triton multiprocessors.
    lanes: 32-bit elements in a vector.
    local_memory: bytes of local memory, or for Triton shared memory, per work-group.
    builtins: the compiler inlines OpenCL's math functions.
    optimize: kernels are optimised. Without it they build in at most half of the time, for tests of other devices'
        schedules.
    memory: bytes of device memory, 0 if unknown.
    sm: for Triton, the architecture (90).
    block: for Triton, the elements per program of an elementwise kernel.
    stream, stream_rows: bytes of a result from which a CPU uses non-temporal stores, in general and for kernels over
        whole rows such as softmax.
    ahead: elementwise kernels on CPUs prefetch their inputs.
    registers: vector registers of a CPU, 32 or 16.
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

    @property
    def kernel_style(self) -> Style:
        """The style, with what planners need to know of it."""
        return style_named(self.style)

    @property
    def takes_runs(self) -> bool:
        """True if a work-item processes a run of elements with vector registers, as on CPUs."""
        return style_named(self.style).takes_runs

    def group_size(self, limit: int) -> int:
        """Return the size of work-groups: up to `limit`; 1 on devices without work-groups."""
        return min(limit, self.max_group) if style_named(self.style).has_work_groups else 1

    def vector_lanes(self, itemsize: int) -> int:
        """Return the elements of `itemsize` bytes in a vector register; 1 if a work-item processes one element."""
        if not style_named(self.style).takes_runs:
            return 1
        return max(1, self.lanes // 2) if itemsize == 8 else self.lanes

    def elementwise_lanes(self, itemsize: int, width: int | None = None) -> int:
        """Return the elements of `itemsize` bytes per vector of elementwise kernels: at most 4 on GPUs.

        Args:
            width: 32-bit elements in a vector from a tuned schedule; None applies the rule of the device.
        """
        if not style_named(self.style).takes_runs:
            return width or min(self.lanes, 4)
        lanes = width or self.lanes
        return lanes // 2 if itemsize == 8 else lanes


@dataclass(frozen=True, slots=True)
class Slot:
    """How one buffer's elements are stored (a dtype's name) and read: `value`, `mask`, `index` or `raw`."""

    dtype: str
    type: str = "value"


@dataclass(frozen=True, slots=True)
class Instance:
    """One kernel of a source text with its types fixed: the unit of compilation, and the key of compiled kernels.

    name: the op, for errors. text: kernel source, generic in dtype. entry: the kernel in it.
    element: the compute type in OpenCL C (`float`). lanes: width of the vector type `V`. slots: the buffers in order.
    defines: macros (name, value); for Triton the kernel's constants. functions: math functions that the text calls.
    pointers: number of buffers, if that is not one per slot.
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
    """One launch.

    buffers: positions among inputs + outputs + scratch.
    geometry: data that depends on shapes only: the bytes of a struct, or for Triton one integer or tuple of integers
        per parameter.
    global_size: work-items, or for Triton programs.
    work: cost estimate by which a CPU device decides whether to use helper threads, in units of half a nanosecond on
        one core: about one per element of a simple op.
    scalars: positions among the call's numbers.
    integers: positions of numbers that are 64-bit integers whatever the compute type is (seeds, offsets, counts).
    reaches: the kernel follows addresses in a table to tensors that are passed after `buffers`.
    wraps: integers among `scalars` that do not fit the compute type wrap around; otherwise they raise `ArgumentError`.
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
    wraps: bool = False


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: Event, /) -> float: ...


class Stream(Protocol):
    """An in-order queue of work with its own memory pool."""

    pool: Pool

    @property
    def device(self) -> Device: ...
    def synchronize(self) -> None: ...
    def record_event(self, event: Event | None = None, /) -> Event: ...
    def wait_event(self, event: Event, /) -> None: ...
    def query(self) -> bool: ...


class Driver(Protocol):
    """An opened device.

    A driver may have more members, which callers look up by `getattr`: `identity`, the key of stored timings (default:
    `name`); `is_cached(instance)`; `read_later` and `write_later`, copies for which the host does not wait;
    `miss_word`, a `MissWord`; `wait_for(storage)`, if launches may be queued while the host reads memory itself;
    `captures`, the number of graphs that are being captured.

    Attributes:
        target: The language of the kernels: the name of a `targets.Target`.
        name: The device's name for users.
        budget: The memory budget that the pools of all streams share.
    """

    device: Device
    target: str
    name: str
    budget: Budget

    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def default_stream(self) -> Stream: ...

    def new_stream(self) -> Stream: ...
    def new_event(self, timing: bool) -> Event: ...

    def launcher(self, steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for this thread, which queues `steps` in order.

        Args:
            steps: The planned launches.
            scratch: Sizes in bytes of temporary buffers, allocated at each call; `MISS_WORD` stands for
                the device's miss word.
        """

    def allocate(self, nbytes: int, stream: Stream) -> Storage:
        """Return a new storage from the pool of a stream."""

    def adopt(self, array: Array) -> Storage:
        """Return a storage with the bytes of an array: the array's memory itself, or a copy in device memory."""

    def retire(self, owner: object, buffer: object) -> None:
        """Keep foreign memory alive until work that may use it is done. Called when its storage is deleted."""

    def write(self, storage: Storage, offset: int, array: Array, stream: Stream) -> None:
        """Copy a contiguous array to a byte offset of a storage, in the order of the stream."""

    def read(self, storage: Storage, offset: int, array: Array, stream: Stream) -> object:
        """Copy from a byte offset of a storage into a contiguous array, in the order of the stream, and wait."""

    def host_view(self, storage: Storage) -> Array | None:
        """Return the storage's bytes as an array without a copy; None if the host cannot access them."""

    def synchronize(self) -> None:
        """Wait for all queued work."""

    def build(self, planned: Sequence[Step | Instance]) -> int:
        """Compile the kernels of steps or instances, and return their number."""
