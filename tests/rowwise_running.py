"""Calls of rowwise ops with NumPy arrays, under the schedules of several devices, and their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vendors import change_capabilities

import weftgrad.codegen
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.tensor import Tensor

__all__ = ["SPECS", "VENDORS", "fetch", "tensor", "use_vendor"]

SPECS = Path(str(resources.files(weftgrad.codegen))) / "specs" / "rowwise.yaml"

VENDORS: dict[str, dict[str, Any]] = {
    "cpu": {},
    "gpu": {"style": "gpu", "lanes": 4, "max_group": 256},
    "poor": {"style": "gpu", "lanes": 4, "max_group": 64, "local_memory": 16384, "fp64": False, "cores": 3},
}

Array = np.ndarray[Any, Any]


def use_vendor(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for _ in change_capabilities(VENDORS[name], monkeypatch):
        yield name


def tensor(array: Any, dtype: str | None = None) -> Tensor:
    """Return a tensor with the array's strides, over a copy of its base memory, with the values rounded to `dtype`."""
    array = np.asarray(array)
    if dtype == "bfloat16":
        array = to_bfloat16(array)
    elif dtype is not None:
        array = array.astype(dtype)
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


def to_bfloat16(array: Array) -> Array:
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).reshape(array.shape)


def fetch(result: Tensor) -> Array:
    layout = result.meta
    assert layout.contiguous
    array = np.empty(layout.shape, layout.dtype.numpy)
    driver = result.storage.device.driver
    if array.size:
        driver.read(result.storage, result.start - result.storage.start, array, driver.default_stream)
    if layout.dtype is dtypes.bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
