"""Calls of reductions with NumPy arrays, under the schedules of several devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

import weftgrad.codegen
from weftgrad.codegen.render import record_literals, render_all
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.records import OpRecord, Text, make_record
from weftgrad.runtime.tensor import Tensor

__all__ = [
    "SPECS",
    "VENDORS",
    "Case",
    "close",
    "entry",
    "equal",
    "fetch",
    "records_of",
    "run",
    "run_all",
    "statics",
    "tensor",
    "with_saved_outputs",
]

SPECS = Path(str(resources.files(weftgrad.codegen))) / "specs" / "reductions.yaml"

VENDORS = {
    "cpu": {},
    "gpu": {"style": "gpu", "lanes": 4, "max_group": 256},
    "poor": {"style": "gpu", "lanes": 4, "max_group": 64, "local_memory": 16384, "fp64": False, "cores": 1},
}


def records_of(ops: Any) -> dict[str, OpRecord]:
    generated = render_all(ops, 0).records
    return {
        name: make_record(
            **record_literals(data), texts={k: Text(s.text, s.functions) for k, s in data.rendered.sources.items()}
        )
        for name, data in generated.items()
    }


def tensor(array: np.ndarray[Any, Any], dtype: str | None = None) -> Tensor:
    """Return a tensor with the array's strides, over a copy of the memory that the array is a view of."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    element_dtype = dtypes.parse(dtype or array.dtype)
    memory = dispatch.empty(meta(element_dtype, (base.size,), None, device("cpu")))
    driver = memory.storage.device.driver
    if base.size:
        driver.write(memory.storage, 0, np.ndarray((base.size,), base.dtype, base), driver.default_stream)
    byte_offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0] if array.size else 0
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(memory.storage, meta(element_dtype, array.shape, strides, device("cpu")), memory.start + byte_offset)


def fetch(result: Tensor) -> np.ndarray[Any, Any]:
    layout = result.meta
    assert layout.contiguous
    array = np.empty(layout.shape, layout.dtype.numpy)
    driver = result.storage.device.driver
    if array.size:
        driver.read(result.storage, result.start - result.storage.start, array, driver.default_stream)
    return array


def statics(record: OpRecord, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(kwargs.get(s, False if s == "keepdim" else None) for s in record.statics)


def run(record: OpRecord, *operands: Any, **kwargs: Any) -> Any:
    results = dispatch.call(record, operands, statics(record, kwargs))
    return tuple(map(fetch, results)) if isinstance(results, tuple) else fetch(results)


def with_saved_outputs(record: OpRecord) -> OpRecord:
    """Return the op in the form for recorded calls: with the outputs that its gradients read."""
    return replace(record, bare="")


Case = tuple[OpRecord, tuple[Any, ...], dict[str, Any], Callable[[Any], None]]


def run_all(cases: list[Case]) -> None:
    """Run every case with and without saved outputs, after building all kernels in a few programs."""
    cases = [*cases, *((with_saved_outputs(record), *call) for record, *call in cases if record.bare)]
    driver: Any = device("cpu").driver
    plans = [dispatch.plan_for(record, operands, statics(record, kwargs)) for record, operands, kwargs, _ in cases]
    driver.build([step.instance for plan in plans for step in plan.steps])
    for record, operands, kwargs, check in cases:
        check(run(record, *operands, **kwargs))


def close(expected: Any, tolerance: float, scale: Any = 1.0) -> Callable[[Any], None]:
    def check(actual: Any) -> None:
        assert actual.shape == np.shape(expected), (actual.shape, np.shape(expected))
        actual64 = actual.astype(np.float64)
        is_equal = (actual64 == expected) | (np.isnan(actual64) & np.isnan(expected))
        with np.errstate(invalid="ignore"):
            error = np.where(is_equal, 0, np.abs(actual64 - expected))
        assert (error <= tolerance * np.maximum(scale, 1e-30)).all(), (np.max(error), np.shape(expected))

    return check


def equal(expected: Any, dtype: Any = None) -> Callable[[Any], None]:
    def check(actual: Any) -> None:
        for g, e in zip(actual, expected, strict=True) if isinstance(actual, tuple) else ((actual, expected),):
            np.testing.assert_array_equal(g, e)
            assert g.shape == np.shape(e)
            assert dtype is None or isinstance(actual, tuple) or g.dtype == dtype, g.dtype

    return check


def entry(**fields: Any) -> str:
    lines = ['- op: "mix(input, dim: int | None = None)"', "  kind: reduction"]
    return "\n".join([*lines, *(f"  {k}: {v}" for k, v in fields.items())])
