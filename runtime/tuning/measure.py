"""One call with data of its own: what candidates for it give, and how long they take.

Nothing here goes through `dispatch`: a candidate is a plan made and launched apart from those of the program, so no
mode, no profiler and no recorded graph sees it.

Times of devices that are the host's own cores are minima of short samples by the host's clock, which survive a machine
that others use too; those of GPUs are taken between two events of a stream of the tuner's own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import schedules
from ..device import Device, Meta
from ..dtypes import DType
from ..errors import WeftgradError
from ..kinds import Planned, Request, planner
from ..records import OpRecord
from ..schedules import Choice, Question
from ..storage import Storage
from ..tensor import Tensor

__all__ = ["Call", "Trials", "differ"]

Array = np.ndarray[Any, Any]
_SAMPLE = 5e-4  # seconds that a sample should last at least
_MOST = 1000  # calls a sample
_BLOCK = 1 << 16  # random numbers that are drawn; larger operands repeat them
# How far results may be from those of the shipped schedule, of the largest of them: sums in another order differ.
_TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-12}
_BILINEAR = ("contraction", "custom")  # kinds whose operands may be of either sign


@dataclass(frozen=True, slots=True)
class Call:
    """One call without its data. operands: a `Meta` for a tensor, a number, or None for an absent optional; into:
    layouts of results that exist already, or None."""

    record: OpRecord
    operands: tuple[Meta | int | float | None, ...]
    statics: tuple[object, ...]
    device: Device
    into: tuple[Meta, ...] | None = None

    @staticmethod
    def of(request: Request, operands: Sequence[Any]) -> Call:
        """The call that `request` is of, with the numbers among `operands`."""
        given = tuple(o.meta if isinstance(o, Tensor) else o for o in operands)
        return Call(request.record, given, request.statics, request.device, request.into)

    @property
    def request(self) -> Request:
        given = tuple(o if o is None or isinstance(o, Meta) else _kind(o) for o in self.operands)
        return Request(self.record, given, self.statics, self.device, self.into)

    def plan(
        self, forced: Mapping[str, Choice] | None = None, *, tuned: bool = False
    ) -> tuple[Planned, list[Question]]:
        """What a planner makes of it under these choices, and what it asked."""
        with schedules.planning(forced, tuned=tuned) as asked:
            return planner(self.record.kind)(self.request), asked

    def __str__(self) -> str:
        return self.request.where()


def _kind(number: object) -> type:
    return bool if isinstance(number, bool) else int if isinstance(number, int) else float


class Trials:
    """A call's operands and results on its device, and what is needed to run plans over them.

    Raises `MemoryError` (`OutOfMemoryError`) where there is no room for them beside the program's own.
    """

    def __init__(self, call: Call, planned: Planned):
        self.call, self.device = call, call.device
        self.driver: Any = call.device.driver
        self.on_host = self.driver.capabilities.style == "cpu" or call.device.type in ("cpu", "interpreter")
        self.driver.synchronize()  # what the program has queued is done before anything is timed
        self.stream = self.driver.default_stream if self.on_host else self.driver.new_stream()
        self.inputs = [self._operand(i, m) for i, m in enumerate(call.operands) if isinstance(m, Meta)]
        self.numbers = [o for o in call.operands if o is not None and not isinstance(o, Meta)]
        self.outs = [self._empty(layout) for layout in planned.outputs]
        self.everything = [*self.inputs, *self.outs]

    # data

    def _empty(self, layout: Meta) -> Tensor:
        if not layout.numel:
            return Tensor(Storage(self.device, 0, None, None, None, 0), layout, 0)
        storage = self.driver.allocate(_extent(layout) * layout.dtype.itemsize, self.stream)
        return Tensor(storage, layout, storage.start)

    def _operand(self, position: int, layout: Meta) -> Tensor:
        made = self._empty(layout)
        if layout.numel:
            role = self.call.record.operands[min(position, len(self.call.record.operands) - 1)]
            values = self._values(layout, role.type, np.random.default_rng(position))
            self.driver.write(made.storage, 0, values, self.stream)
        return made

    def _values(self, layout: Meta, type: str, rng: np.random.Generator) -> Array:
        """Numbers that every op takes: indices 0, others between 1/4 and 1, or of either sign where sums are of
        products; in sorts, no two alike as far as the dtype has enough of them."""
        dtype, count = layout.dtype, _extent(layout)
        if type == "index":
            return np.zeros(count, dtype.numpy)
        drawn = count if self.call.record.kind == "sort" else min(count, _BLOCK)
        if dtype.kind == "b":
            block = rng.random(drawn) > 0.5
        elif dtype.kind in "ui":
            block = rng.integers(1, 100 if self.call.record.kind == "sort" else 5, drawn).astype(dtype.numpy)
        else:
            low = -1.0 if self.call.record.kind in _BILINEAR else 0.25
            block = _stored(rng.uniform(low, 1.0, drawn), dtype)
        return block if drawn == count else np.resize(block, count)

    def results(self, run: Callable[..., None]) -> list[Array]:
        """What a plan gives, over results that held no numbers before."""
        for out in self.outs:
            if out.meta.numel:
                nothing = np.full(_extent(out.meta) * out.meta.dtype.itemsize, 0xFF, np.uint8)
                self.driver.write(out.storage, 0, nothing, self.stream)
        run(self.everything, self.numbers, self.stream)
        self.stream.synchronize()
        return [self._read(out) for out in self.outs]

    def _read(self, out: Tensor) -> Array:
        layout = out.meta
        dtype = layout.dtype
        if not layout.numel:
            return np.empty(layout.shape, dtype.numpy)
        flat = np.empty(_extent(layout), dtype.numpy)
        self.driver.read(out.storage, 0, flat, self.stream)
        if dtype.name == "bfloat16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        strides = tuple(s * flat.itemsize for s in layout.strides)
        return np.lib.stride_tricks.as_strided(flat, layout.shape, strides, writeable=False)

    # time

    def prepare(self, planned: Planned) -> Callable[..., None]:
        """A plan's kernels, built, as a function that queues them. Raises what building raises."""
        return self.driver.launcher(planned.steps, planned.scratch)  # type: ignore[no-any-return]

    def build(self, plans: Sequence[Planned]) -> None:
        """Build what plans need in one go, in a quarter of the time. What does not build shows in `prepare`."""
        steps = [step for planned in plans for step in planned.steps]
        with contextlib.suppress(WeftgradError):
            if self.driver.target == "triton":
                self.driver.build(steps)
            else:
                self.driver.build([step.instance for step in steps])

    def calls(self, run: Callable[..., None]) -> int:
        """How many calls a sample should have."""
        self.sample(run, 1)
        once = min(self.sample(run, 1) for _ in range(2))
        return max(1, min(_MOST, int(_SAMPLE / max(once, 1e-9))))

    def sample(self, run: Callable[..., None], n: int) -> float:
        """Seconds a call, of `n` calls one after the other."""
        everything, numbers, stream = self.everything, self.numbers, self.stream
        if self.on_host:
            begin = time.perf_counter()
            for _ in range(n):
                run(everything, numbers, stream)
            stream.synchronize()
            return (time.perf_counter() - begin) / n
        first, last = self.driver.new_event(True), self.driver.new_event(True)
        run(everything, numbers, stream)  # so that the device is busy while the host queues the others
        stream.record_event(first)
        for _ in range(n):
            run(everything, numbers, stream)
        stream.record_event(last)
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / n


def _extent(layout: Meta) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))


def _stored(values: Array, dtype: DType) -> Array:
    if dtype.name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(dtype.numpy)


def differ(expected: Sequence[Array], found: Sequence[Array], layouts: Sequence[Meta]) -> bool:
    """Whether results are others: integers at all, floating ones by more than sums in another order explain."""
    for one, two, layout in zip(expected, found, layouts, strict=True):
        if layout.dtype.kind != "f":
            if not np.array_equal(one, two):
                return True
            continue
        a, b = one.astype(np.float64, copy=False), two.astype(np.float64, copy=False)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return True
        if not finite.all():
            if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
                return True
            a, b = a[finite], b[finite]
        if a.size and float(np.abs(a - b).max()) > _TOLERANCE[layout.dtype.name] * float(np.abs(a).max()):
            return True
    return False
