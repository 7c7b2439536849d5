"""Interpreter devices with small blocks, and names of the schedules that they launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from triton_running import (
    RecordingInterpreter,
    interpreter,
)

from weftgrad.runtime import dispatch
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.records import registry

__all__ = ["SMALL", "SMALL_DRIVER", "flip", "launched_traits", "random_arrays", "schedule"]

pytest.importorskip("triton")  # skips the test module that imports this one

Array = Any
SMALL, SMALL_DRIVER = interpreter("block=64,cores=2")


def schedule(step: Step) -> str:
    """Return the name `template.schedule` of a step."""
    entry = step.instance.entry
    if entry.startswith("contraction_"):
        return f"contraction.{entry.removeprefix('contraction_')}"
    for family in ("convolution", "attention"):
        if entry.startswith(f"{family}_"):
            return f"{family}.{entry.removeprefix(f'{family}_')}"
    kind = registry[step.instance.name].kind
    return f"{'pointwise' if kind == 'random' else kind}.{entry.removeprefix(step.instance.name + '_')}"


def traits(step: Step) -> Iterator[str]:
    """Yield the name of the schedule, and names for properties that not all launches of the schedule have."""
    name, grid = schedule(step), (*step.global_size, 1, 1)
    defines, geometry = dict(step.instance.defines), step.geometry
    yield name
    if grid[0] > 1:
        yield f"{name} many"  # programs
    if name in ("pointwise.rows", "index.read", "index.write") and geometry[2] > 1:
        yield f"{name} across"  # tiles side by side
    if name == "index.write" and grid[1] > 1:
        yield f"{name} ranges"
    if name == "reduction.partial" and grid[1] > 1:
        yield f"{name} shares"
    if name in ("rowwise.whole", "rowwise.swept") and "finish" in step.instance.text and len(step.buffers) > 1:
        run = geometry[2]
        if grid[0] > 1 and run > defines["ROWS"]:
            yield f"{name} sums"  # a program sums over several tiles of rows
    if name in ("reduction.tiles", "reduction.partial") and defines["LINES"]:
        yield f"{name} lines"
    if name == "rowwise.whole" and defines["ROWS"] > 1:
        yield f"{name} tall"
    if name == "convolution.weight" and geometry[-1] > 1:
        yield f"{name} parts"


def launched_traits(driver: RecordingInterpreter, start: int) -> set[str]:
    return {trait for step in driver.launched[start:] for trait in traits(step)}


def flip(x: Any) -> Any:
    return dispatch.call(registry["flip_view"], (x,), ((0, 1),))


def random_arrays(shapes: Iterable[tuple[int, ...]], dtype: str = "float64") -> list[Array]:
    rng = np.random.default_rng(4)
    return [rng.uniform(0.2, 1.2, shape).astype(dtype) for shape in shapes]
