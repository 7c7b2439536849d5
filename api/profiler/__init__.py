"""Profiling with the interface of `torch.profiler`: what the host and the devices ran, and when.

    with wg.profiler.profile(record_shapes=True) as prof:
        with wg.profiler.record_function("forward"):
            model(x)
    print(prof.key_averages().table(sort_by="self_device_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")        # for Perfetto or chrome://tracing

Kernel times of OpenCL and CUDA devices come from the device's own clock, aligned with the host's (`runtime.tracing`).
Kernels on `cpu` run inside the call that launches them, timed by the host's clock; only launches that wait
for a kernel's compilation run later. Without an active profile, calls of ops have no overhead.
"""

from __future__ import annotations

from .events import EventList, FunctionEvent, FunctionEventAvg
from .profile import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from .recording import record_function

__all__ = [
    "EventList", "FunctionEvent", "FunctionEventAvg", "ProfilerAction", "ProfilerActivity", "profile",
    "record_function", "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
