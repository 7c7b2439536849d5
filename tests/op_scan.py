"""Test cases of scans, and references that go from element to element.

A call is an op, a shape, a layout, a dimension, and a direction if the op has one. Values and their sums and products
are exactly representable in every dtype. So results must be exact, in whatever order a schedule combines elements; only
logarithms and discounts are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from op_references import REFERENCES
from op_running import Array, Case, GradientCase, caller, differentiable, has, numpy_of, rounded, tensor, with_layout

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

__all__ = ["scan_cases", "scan_gradient_cases"]


# References


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of lines (..., n) into one along `dim`, backwards with `reverse`."""

    def run(*arrays: Array, dim: int, reverse: bool = False) -> Any:
        if not arrays[0].ndim:
            result = function(*(a.reshape(1) for a in arrays))
            return tuple(f.reshape(()) for f in result) if isinstance(result, tuple) else result.reshape(())
        lines = [np.moveaxis(a, dim, -1)[..., :: -1 if reverse else 1] for a in arrays]
        result = function(*lines)
        restored = [np.moveaxis(f[..., :: -1 if reverse else 1], -1, dim) for f in _tuple(result)]
        return tuple(restored) if isinstance(result, tuple) else restored[0]

    return run


def _tuple(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def _wide(array: Array) -> Array:
    return array.astype(np.int64) if array.dtype.kind in "bui" else array


def _extreme(better: Callable[[Any, Any], bool]) -> Callable[[Array], tuple[Array, Array]]:
    def run(lines: Array) -> tuple[Array, Array]:
        values, indices = np.empty_like(lines), np.empty(lines.shape, np.int64)
        for line in np.ndindex(lines.shape[:-1]):
            best = 0
            for i, value in enumerate(lines[line]):
                best_value = lines[line][best]
                if better(value, best_value) or value == best_value or value != value:
                    best = i
                values[line][i], indices[line][i] = lines[line][best], best
        return values, indices

    return run


def _recurrence(factor: Array, value: Array) -> Array:
    out, state = np.empty_like(value), np.zeros(value.shape[:-1])
    for i in range(value.shape[-1]):
        state = factor[..., i] * state + value[..., i]
        out[..., i] = state
    return out


def _discounted(values: Array, level: Array) -> Array:
    out = np.zeros_like(values)
    for i in range(values.shape[-1]):
        out[..., i] = (values[..., : i + 1] * np.exp(level[..., i : i + 1] - level[..., : i + 1])).sum(-1)
    return out


SCAN_REFERENCES = {
    "cumsum": _along(lambda lines: np.cumsum(_wide(lines), -1)),
    "cumprod": _along(lambda lines: np.cumprod(_wide(lines), -1)),
    "cummax": _along(_extreme(lambda value, best: value > best)),
    "cummin": _along(_extreme(lambda value, best: value < best)),
    "logcumsumexp": _along(lambda lines: np.logaddexp.accumulate(lines, -1) if lines.size else lines),
    "recurrence": _along(_recurrence),
    "discounted_sum": _along(_discounted),
}
REFERENCES.update(SCAN_REFERENCES)


# Calls


class Line(NamedTuple):
    """Shape, layout, dimension and direction of a scan."""

    shape: tuple[int, ...]
    layout: str
    dim: int
    reverse: bool = False


# Contiguous lines, adjacent lines (vectorised across lines), strided lines, with partial vectors; no elements.
LINES = [
    Line((5, 17), "contiguous", 1), Line((5, 70), "contiguous", 0, True), Line((2, 165), "contiguous", -1, True),
    Line((17, 5), "transposed", 1), Line((3, 5, 18), "permuted", 1), Line((70,), "flipped", 0),
    Line((), "contiguous", 0),
    Line((33,), "stepped", 0, True), Line((3, 0), "contiguous", 1),
]  # fmt: skip
# Long lines are split into parts, whose totals are computed first.
LONG = [Line((40000,), "contiguous", 0), Line((9000, 17), "contiguous", 0, True), Line((20000, 3), "contiguous", 0)]
_CUT = {"full": LONG, "sizes": LONG[:1], "schedules": LONG[:2], "small": [Line((9000,), "contiguous", 0, True)]}
_LINES = {"full": LINES, "sizes": LINES[:2], "schedules": LINES[:2] + LINES[4:5], "small": LINES[:5] + LINES[6:]}
_WITH_SHARES = ("cumsum", "recurrence", "cummax")  # a sum; a non-commutative combination; a pair of value and index
_DTYPES = {
    "cumsum": ("float64", "float16", "bfloat16", "int32", "uint8", "bool"),
    "cumprod": ("float64", "float16", "int8"),
    "cummax": ("float64", "float16", "uint8", "bool"),
    "cummin": ("bfloat16", "int32"),
    "logcumsumexp": ("float64", "float16"),
    "recurrence": ("float64", "bfloat16"),
    "discounted_sum": ("float64",),
}


def scan_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases with all kinds of lines in float32, and one matrix in other dtypes."""
    lines = list(_LINES[selection])
    if selection in ("sizes", "schedules") and op.name not in ("cumsum", "recurrence"):
        lines = lines[:1]  # other ops use the same schedules
    elif op.name in _WITH_SHARES:
        lines += _CUT[selection] if op.name == "cumsum" else _CUT[selection][:1]
    cases = [_case(op, line, "float32", device) for line in lines]
    dtypes = _DTYPES[op.name] if selection == "full" else _DTYPES[op.name][: 2 * (selection == "small")]
    return cases + [_case(op, LINES[0], dtype, device) for dtype in dtypes if has(device, dtype)]


def _case(op: Op, line: Line, dtype: str, device: Device) -> Case:
    rng = np.random.default_rng(7)
    arrays, tensors = [], []
    for p in op.operands:

        def make(shape: tuple[int, ...], name: str = p.name) -> Array:
            return _values(op.name, name, shape, dtype, rng)

        array, operand = with_layout(make, line.shape, line.layout, lambda a: tensor(a, dtype, device))
        if p.name == "level":  # must not increase along the scan
            array, operand = _falling(array, line, dtype, device)
        arrays.append(array)
        tensors.append(operand)
    named: dict[str, Any] = {"dim": line.dim, "dtype": None, "reverse": line.reverse}
    statics = tuple(named[p.name] for p in op.statics)
    reference_options = {p.name: named[p.name] for p in op.statics if p.name != "dtype"}
    inputs = [a if a.dtype.kind in "bui" else a.astype(np.float64) for a in arrays]
    expected = SCAN_REFERENCES[op.name](*inputs, **reference_options)
    sums = op.result == "accumulate" and numpy_of(dtype).kind in "bui"
    result: Any = "int64" if sums else dtype
    if op.name in ("cummax", "cummin"):
        result = (dtype, "int64")
    case = Case(f"{dtype}, {line}", tensors, arrays, expected, result, statics)
    case.tolerance = (0.0, 0.0) if op.name not in ("logcumsumexp", "discounted_sum") else None
    if case.tolerance is None and dtype == "float32":
        case.tolerance = (4e-6, 4e-6)
    return case


def _values(op: str, operand: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = numpy_of(dtype).kind
    if kind == "b":
        return rng.random(shape) > 0.3
    if op == "cumprod":
        values = rng.choice([1, 1, -1, 2, 0.5, 0] if kind == "f" else [1, 1, 2, 3, 0 if kind == "u" else -1], shape)
        return np.asarray(values).astype(numpy_of(dtype)) if kind != "f" else rounded(values, dtype)
    if operand == "factor":  # sums stay multiples of 1/8 of a moderate size
        return rounded(rng.choice([1, -1, 0], shape, p=[0.5, 0.4, 0.1]), dtype)
    integers = rng.integers(0 if kind == "u" else -16, 17, shape)
    if kind != "f":
        return integers.astype(numpy_of(dtype))
    values = integers / 8
    if op in ("cummax", "cummin") and values.size:  # many equal values, and NaN in the last third
        values.reshape(-1)[values.size * 2 // 3 :: 3] = np.nan
        values.reshape(-1)[: values.size // 3 : 5] = -np.inf if op == "cummax" else np.inf
    return rounded(values, dtype)


def _falling(array: Array, line: Line, dtype: str, device: Device) -> tuple[Array, Any]:
    """Return levels that decrease along the scan, as the op requires."""
    if array.ndim:
        array = np.sort(array, line.dim)
        array = np.ascontiguousarray(array if line.reverse else np.flip(array, line.dim))
    return array, tensor(array, dtype, device)


def scan_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases of contiguous and strided lines, with zeros among the factors."""
    lines = [Line((1, 9), "contiguous", 1), Line((4, 2), "contiguous", 0, True)]
    cases = []
    names, call = differentiable(op), caller(op)
    for line in lines[1:2] if selection == "small" else lines:
        size = int(np.prod(line.shape))
        inputs = []
        for k, p in enumerate(op.operands):
            values = np.random.default_rng(k).permutation(size).reshape(line.shape) / 5 + 0.3
            if p.name == "factor" or op.name == "cumprod":
                values.reshape(-1)[1:size:5] = 0
            if p.name == "level":
                values = _falling(values, line, "float64", device)[0]
            inputs.append(tensor(values, "float64", device, p.name in names))
        named = {"dim": line.dim, "dtype": None, "reverse": line.reverse}
        statics = tuple(named[p.name] for p in op.statics)
        cases.append(GradientCase(str(line), lambda *x, s=statics: call(*x, statics=s), inputs, tuple(names)))
    return cases
