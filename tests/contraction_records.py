"""Ops of contractions by their equations, their operands, and the comparison of results with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weftgrad.codegen.kinds import contraction as kind
from weftgrad.codegen.model import Op, Param
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.records import Operand, OpRecord, Text
from weftgrad.runtime.tensor import Tensor

__all__ = ["LINEAR", "MATMUL", "compare", "draw", "fetch", "make_op", "record_for", "tensor"]

MATMUL = "...mk,...kn->...mn"
LINEAR = "...k,nk->...n"


def make_op(equation: Any, *names: str, grad: Any = None) -> Op:
    """Return an op of this equation, as the loader would build it."""
    params = tuple(Param(n, "tensor", "Tensor") for n in names or ("input", "other"))
    outputs = equation if isinstance(equation, dict) else {"out": equation}
    return Op("mix", "contraction", params, outputs=outputs, grad=grad, file="mix.yaml", line=3)


def build_record(equation: str) -> OpRecord:
    from importlib import resources

    import jinja2

    import weftgrad.templates

    folder = Path(str(resources.files(weftgrad.templates)))
    rendered = kind.render(make_op(equation), jinja2.Environment(loader=jinja2.FileSystemLoader(folder)))
    text = Text(rendered.sources["opencl"].text, rendered.sources["opencl"].functions)
    return OpRecord(
        "mix", "contraction", (Operand("input"), Operand("other")), texts={"opencl": text}, detail=rendered.detail
    )


def tensor(array: np.ndarray[Any, Any], dtype: str | None = None) -> Tensor:
    """Copy the memory that the array is a view of, and return a tensor with the array's strides over the copy."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    tensor_dtype = dtypes.parse(dtype or array.dtype)
    flat = dispatch.empty(meta(tensor_dtype, (base.size,), None, device("cpu")))
    driver = flat.storage.device.driver
    if base.size:
        driver.write(flat.storage, 0, np.ndarray((base.size,), base.dtype, base), driver.default_stream)
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0] if array.size else 0
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(flat.storage, meta(tensor_dtype, array.shape, strides, device("cpu")), flat.start + start)


def fetch(result: Tensor) -> np.ndarray[Any, Any]:
    layout = result.meta
    extent = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)) if layout.numel else 0
    flat = np.empty(extent, layout.dtype.numpy)
    driver = result.storage.device.driver
    if extent:
        driver.read(result.storage, result.start - result.storage.start, flat, driver.default_stream)
    return np.lib.stride_tricks.as_strided(flat, layout.shape, [s * flat.itemsize for s in layout.strides])


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def compare(*cases: tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]], tolerance: float = 4e-6) -> None:
    for equation, a, b in cases:
        actual = fetch(dispatch.call(record_for(equation), (tensor(a), tensor(b))))
        check_close(equation, a, b, actual, tolerance)


def expand_ellipsis(equation: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    """Return the equation with letters in place of `...`, because NumPy does not sum over an ellipsis."""
    operands, result = equation.split("->")
    terms = operands.split(",")
    counts = [x.ndim - len(t.removeprefix("...")) for t, x in zip(terms, (a, b), strict=True)]
    named = ["ABCDEFGH"[8 - n :] for n in (*counts, max(counts))]
    first, second, out = (t.replace("...", n) for t, n in zip((*terms, result), named, strict=True))
    return f"{first},{second}->{out}"


def check_close(
    equation: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], tolerance: float
) -> None:
    equation = expand_ellipsis(equation, a, b)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        expected = np.einsum(equation, a, b)
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
        return
    expected = np.einsum(equation, a.astype(np.float64), b.astype(np.float64))
    scale = np.einsum(equation, np.abs(a).astype(np.float64), np.abs(b).astype(np.float64))
    assert actual.shape == expected.shape
    error = np.abs(actual - expected)
    assert not np.isnan(error).any()
    assert (error <= tolerance * scale + 1e-30).all(), (a.shape, a.strides, b.shape, b.strides, (error / scale).max())


_records: dict[str, OpRecord] = {}


def record_for(equation: str) -> OpRecord:
    if equation not in _records:
        _records[equation] = build_record(equation)
    return _records[equation]
