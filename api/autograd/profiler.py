"""PyTorch's former profiling interface, `torch.autograd.profiler`, on top of `weftgrad.profiler`."""

from __future__ import annotations

import os
from typing import Self

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, ProfilerActivity, record_function
from ..profiler import profile as _Profile
from ..runtime.errors import ArgumentError

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class profile:
    """Record what runs inside a `with` block.

    Args:
        enabled: False records nothing.
        use_cuda: Former name of `use_device="cuda"`.
        use_device: Also record kernels on other devices than the CPU; the name does not matter.
        record_shapes: Store the input shapes of each call.
        with_flops: Estimate floating-point operations.
        profile_memory: Record allocations.
        with_stack: Store the Python stack of each call.
        with_modules: Store the module hierarchy of each call.
        use_kineto: Accepted for compatibility.
        use_cpu: Record host calls and kernels on CPU cores.

    Raises:
        ArgumentError: If another profile is active, or if results are read before the block has ended.

    Example:
        >>> with wg.autograd.profiler.profile() as prof:
        ...     result = wg.ones(2) + 1
        ...
        >>> 'add' in [event.key for event in prof.key_averages()]
        True
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
        record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
        with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True,
    ):  # fmt: skip
        self.enabled = enabled
        profiles_devices = use_cuda or use_device not in (None, "cpu")
        host_activities = {ProfilerActivity.CPU} if use_cpu else set()
        self._profile = _Profile(
            activities=host_activities | ({ProfilerActivity.CUDA} if profiles_devices else set()),
            record_shapes=record_shapes, with_flops=with_flops, profile_memory=profile_memory,
            with_stack=with_stack, with_modules=with_modules,
        )  # fmt: skip

    def __enter__(self) -> Self:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList[FunctionEvent]:
        """All recorded events."""
        if not self.enabled:
            raise ArgumentError("profile: it is not enabled, so nothing was recorded")
        return self._profile.events()

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0
    ) -> EventList[FunctionEventAvg]:
        """Return the events summed by name (and input shape or stack, if asked for).

        Args:
            group_by_input_shape: Separate events with different input shapes.
            group_by_stack_n: Separate events by this number of innermost frames.

        Returns:
            `EventList` of `FunctionEventAvg`.
        """
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """Return the sum of all events.

        Returns:
            `FunctionEventAvg`.
        """
        return self.function_events.total_average()

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75,
        max_name_column_width: int = 55, max_shapes_column_width: int = 80, header: str | None = None,
        top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """Return a table of the events, summed by name. Kernels have rows of their own.

        Args:
            sort_by: An attribute of the sums, such as `self_device_time_total`, `cpu_time` or `count`.
            row_limit: The maximum number of rows.
            max_src_column_width: Longer source locations are cut.
            max_name_column_width: Longer names are cut.
            max_shapes_column_width: Longer shapes are cut.
            header: A line above the table.
            top_level_events_only: Leave out nested events.
            time_unit: `s`, `ms` or `us`; None: chosen for each time.

        Returns:
            Text of several lines.

        Raises:
            ArgumentError: `sort_by` or `time_unit` is unknown.
        """
        return self.function_events.table(
            sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header,
            top_level_events_only, time_unit,
        )  # fmt: skip

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON for Perfetto or chrome://tracing.

        Args:
            path: File; `.gz` at the end compresses it.

        Raises:
            ArgumentError: If nothing was recorded.
        """
        self.function_events  # noqa: B018  (raises an error if disabled)
        self._profile.export_chrome_trace(path)

    @property
    def self_cpu_time_total(self) -> float:
        """Total host time of all events in microseconds."""
        return self.function_events.self_cpu_time_total
