"""PyTorch's older module of profiling: `profile` with its options, `record_function`; see `weftgrad.profiler`."""

from __future__ import annotations

import os
from typing import Any, Self

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, ProfilerActivity, record_function
from ..profiler import profile as _Profile
from ..runtime.errors import ArgumentError

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class profile:
    """Records what runs in a `with` block; without `enabled` it does nothing. use_cpu: the host, and kernels on its
    cores. use_device: kernels on other devices as well (any name); use_cuda is its older form.

    Raises `ArgumentError` where another profile lasts, and where results are asked for before the block has ended.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
        record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
    ):  # fmt: skip
        self.enabled = enabled
        others = use_cuda or use_device not in (None, "cpu")
        chosen = {ProfilerActivity.CPU} if use_cpu else set()
        self._profile = _Profile(
            activities=chosen | ({ProfilerActivity.CUDA} if others else set()), record_shapes=record_shapes,
            with_flops=with_flops, profile_memory=profile_memory, with_stack=with_stack, with_modules=with_modules,
        )  # fmt: skip

    def __enter__(self) -> Self:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList:
        """Everything that was recorded (`EventList`)."""
        if not self.enabled:
            raise ArgumentError("profile: it is not enabled, so nothing was recorded")
        return self._profile.events()

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums of equal events."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """Everything in one sum."""
        return self.function_events.total_average()

    def table(self, *given: Any, **named: Any) -> str:
        """A table of all events' sums (`EventList.table`)."""
        return self.function_events.table(*given, **named)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON for Perfetto or chrome://tracing."""
        self.function_events  # noqa: B018  (raises where there are none)
        self._profile.export_chrome_trace(path)

    @property
    def self_cpu_time_total(self) -> float:
        """Host time of all, microseconds."""
        return self.function_events.self_cpu_time_total
