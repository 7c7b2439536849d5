"""Run candidate plans of one call on test data: check their results and time them.

Nothing here goes through `dispatch`. A candidate is planned and launched separately from the program, so modes,
profilers and captured graphs do not see it.

On devices that are the host's own cores, the host's clock times short samples, and callers use their minimum: it is
robust against other load on the machine. On GPUs, two events on the tuner's own stream time a sample.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import schedules
from ..backends.targets import build_steps
from ..device import Device, Meta
from ..dtypes import Array, DType
from ..errors import WeftgradError
from ..kinds import Planned, Request
from ..planners import planner
from ..records import OpRecord
from ..schedules import Choice, Question
from ..storage import Storage
from ..tensor import Tensor

__all__ = ["Call", "Trials", "differ"]

_MIN_SAMPLE_SECONDS = 5e-4
_MAX_CALLS_PER_SAMPLE = 1000
_RANDOM_BLOCK = 1 << 16  # random numbers drawn for an operand; larger operands repeat them
# Tolerance relative to the largest expected result. Schedules sum in different orders, so results differ by rounding.
_RELATIVE_TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-12}
_SIGNED_KINDS = ("contraction", "custom")  # kinds whose operands may be of either sign


@dataclass(frozen=True, slots=True)
class Call:
    """One call without its data.

    Attributes:
        operands: For each operand a `Meta` (a tensor), a number, or None (an optional operand that is absent).
        into: Layouts of the results that the call writes to (`out=`, in place), or None for fresh results.
    """

    record: OpRecord
    operands: tuple[Meta | int | float | None, ...]
    statics: tuple[object, ...]
    device: Device
    into: tuple[Meta, ...] | None = None

    @staticmethod
    def from_request(request: Request, operands: Sequence[object]) -> Call:
        """Return the call of `request`, with the numbers from `operands`."""
        layouts = tuple(
            o.meta if isinstance(o, Tensor) else o if isinstance(o, int | float) else None for o in operands
        )
        return Call(request.record, layouts, request.statics, request.device, request.into)

    @property
    def request(self) -> Request:
        layouts = tuple(o if o is None or isinstance(o, Meta) else _number_type(o) for o in self.operands)
        return Request(self.record, layouts, self.statics, self.device, self.into)

    def plan(
        self, forced: Mapping[str, Choice] | None = None, *, tuned: bool = False
    ) -> tuple[Planned, list[Question]]:
        """Plan the call under the `forced` schedules.

        Args:
            forced: Schedules by the name of their space.
            tuned: For spaces that are not in `forced`, use the user's tuned schedules instead of the shipped ones.

        Returns:
            The plan, and the questions that the planner asked (see `schedules.Question`).
        """
        with schedules.planning(forced, tuned=tuned) as questions:
            return planner(self.record.kind)(self.request), questions

    def __str__(self) -> str:
        return self.request.where()


def _number_type(number: object) -> type:
    return bool if isinstance(number, bool) else int if isinstance(number, int) else float


class Trials:
    """Operands and results of a call on its device, on which candidate plans run.

    Raises:
        MemoryError: The device has no room for them beside the program's tensors (`OutOfMemoryError`).
    """

    def __init__(self, call: Call, planned: Planned):
        self.call, self.device = call, call.device
        self.driver = call.device.driver
        self.on_host = self.driver.capabilities.takes_runs or call.device.type in ("cpu", "interpreter")
        self.driver.synchronize()  # the program's queued work must not be timed
        self.stream = self.driver.default_stream if self.on_host else self.driver.new_stream()
        self.inputs = [self._operand(i, m) for i, m in enumerate(call.operands) if isinstance(m, Meta)]
        self.numbers = [o for o in call.operands if o is not None and not isinstance(o, Meta)]
        self.outputs = [self._empty(layout) for layout in planned.outputs]
        self.tensors = [*self.inputs, *self.outputs]

    # data

    def _empty(self, layout: Meta) -> Tensor:
        if not layout.numel:
            return Tensor(Storage(self.device, 0, None, None, None, 0), layout, 0)
        storage = self.driver.allocate(_extent(layout) * layout.dtype.itemsize, self.stream)
        return Tensor(storage, layout, storage.start)

    def _operand(self, position: int, layout: Meta) -> Tensor:
        tensor = self._empty(layout)
        if layout.numel:
            role = self.call.record.operands[min(position, len(self.call.record.operands) - 1)]
            values = self._values(layout, role.type, np.random.default_rng(position))
            self.driver.write(tensor.storage, 0, values, self.stream)
        return tensor

    def _values(self, layout: Meta, type: str, rng: np.random.Generator) -> Array:
        """Return test values that every op accepts.

        Indices are 0. Other values lie between 1/4 and 1; for sums of products they lie between -1 and 1. Operands of
        sorts are drawn in full, so that they hold as few equal values as the dtype allows.
        """
        dtype, count = layout.dtype, _extent(layout)
        if type == "index":
            return np.zeros(count, dtype.numpy)
        block_length = count if self.call.record.kind == "sort" else min(count, _RANDOM_BLOCK)
        if dtype.kind == "b":
            block = rng.random(block_length) > 0.5
        elif dtype.kind in "ui":
            block = rng.integers(1, 100 if self.call.record.kind == "sort" else 5, block_length).astype(dtype.numpy)
        else:
            low = -1.0 if self.call.record.kind in _SIGNED_KINDS else 0.25
            block = _to_stored_dtype(rng.uniform(low, 1.0, block_length), dtype)
        return block if block_length == count else np.resize(block, count)

    def results(self, run: Callable[..., None]) -> list[Array]:
        """Run a plan and return its results. The result memory holds NaN before, so that missing writes show."""
        for output in self.outputs:
            if output.meta.numel:
                nan_bytes = np.full(_extent(output.meta) * output.meta.dtype.itemsize, 0xFF, np.uint8)
                self.driver.write(output.storage, 0, nan_bytes, self.stream)
        run(self.tensors, self.numbers, self.stream)
        self.stream.synchronize()
        return [self._read(output) for output in self.outputs]

    def _read(self, output: Tensor) -> Array:
        layout = output.meta
        dtype = layout.dtype
        if not layout.numel:
            return np.empty(layout.shape, dtype.numpy)
        flat = np.empty(_extent(layout), dtype.numpy)
        self.driver.read(output.storage, 0, flat, self.stream)
        if dtype.name == "bfloat16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        strides = tuple(s * flat.itemsize for s in layout.strides)
        return np.lib.stride_tricks.as_strided(flat, layout.shape, strides, writeable=False)

    # time

    def prepare(self, planned: Planned) -> Callable[..., None]:
        """Build a plan's kernels and return a function that queues them. Raises the errors of the build."""
        return self.driver.launcher(planned.steps, planned.scratch)

    def build(self, plans: Sequence[Planned]) -> None:
        """Build the kernels of all plans in one program, in a quarter of the time. `prepare` raises build errors."""
        steps = [step for planned in plans for step in planned.steps]
        with contextlib.suppress(WeftgradError):
            build_steps(self.driver, steps)

    def calls_per_sample(self, run: Callable[..., None]) -> int:
        """Return the number of calls per sample, so that a sample is long enough for the clock."""
        self.sample(run, 1)
        call_seconds = min(self.sample(run, 1) for _ in range(2))
        return max(1, min(_MAX_CALLS_PER_SAMPLE, int(_MIN_SAMPLE_SECONDS / max(call_seconds, 1e-9))))

    def sample(self, run: Callable[..., None], calls: int) -> float:
        """Time `calls` consecutive calls; return the seconds per call."""
        tensors, numbers, stream = self.tensors, self.numbers, self.stream
        if self.on_host:
            begin = time.perf_counter()
            for _ in range(calls):
                run(tensors, numbers, stream)
            stream.synchronize()
            return (time.perf_counter() - begin) / calls
        begin_event, end_event = self.driver.new_event(True), self.driver.new_event(True)
        run(tensors, numbers, stream)  # keeps the device busy while the host queues the timed calls
        stream.record_event(begin_event)
        for _ in range(calls):
            run(tensors, numbers, stream)
        stream.record_event(end_event)
        end_event.synchronize()
        return float(begin_event.elapsed_time(end_event)) * 1e-3 / calls


def _extent(layout: Meta) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))


def _to_stored_dtype(values: Array, dtype: DType) -> Array:
    if dtype.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype.numpy)


def differ(expected: Sequence[Array], actual: Sequence[Array], layouts: Sequence[Meta]) -> bool:
    """Return True if results differ: integers by any amount, floats by more than another order of sums explains."""
    for expected_array, actual_array, layout in zip(expected, actual, layouts, strict=True):
        if layout.dtype.kind != "f":
            if not np.array_equal(expected_array, actual_array):
                return True
            continue
        a, b = expected_array.astype(np.float64, copy=False), actual_array.astype(np.float64, copy=False)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return True
        if not finite.all():
            if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                return True
            a, b = a[finite], b[finite]
        if a.size and float(np.abs(a - b).max()) > _RELATIVE_TOLERANCE[layout.dtype.name] * float(np.abs(a).max()):
            return True
    return False
