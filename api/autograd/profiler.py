"""PyTorch's older module of profiling; `weftgrad.profiler` is where everything is."""

from __future__ import annotations

from ..profiler import EventList, FunctionEvent, FunctionEventAvg, record_function

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "record_function"]
