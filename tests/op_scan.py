"""Test cases of scans (cumulative sums and others), with references in NumPy.

A scan combines the elements of each line, a vector along one dimension. Values and their sums and products are exactly
representable in every dtype. So results must be exact, whatever the order in which a schedule combines elements. Only
`logcumsumexp` and `discounted_sum` are rounded.
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
    """Turn a scan of arrays (..., n) along the last dimension into one along `dim`, from the end with `reverse`."""

    def run(*arrays: Array, dim: int, reverse: bool = False) -> Any:
        if not arrays[0].ndim:
            result = function(*(a.reshape(1) for a in arrays))
            return tuple(f.reshape(()) for f in result) if isinstance(result, tuple) else result.reshape(())
        lines = [np.moveaxis(a, dim, -1)[..., :: -1 if reverse else 1] for a in arrays]
        result = function(*lines)
        restored = [np.moveaxis(f[..., :: -1 if reverse else 1], -1, dim) for f in _as_tuple(result)]
        return tuple(restored) if isinstance(result, tuple) else restored[0]

    return run


def _as_tuple(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def _widen(array: Array) -> Array:
    """Convert integers and bools to int64, the dtype of their sums."""
    return array.astype(np.int64) if array.dtype.kind in "bui" else array


def _extreme(is_better: Callable[[Any, Any], bool]) -> Callable[[Array], tuple[Array, Array]]:
    """Return a scan to the best value so far and its index: the last of equal ones, and NaN once there was one."""

    def run(lines: Array) -> tuple[Array, Array]:
        values, indices = np.empty_like(lines), np.empty(lines.shape, np.int64)
        for line in np.ndindex(lines.shape[:-1]):
            best = 0
            for i, value in enumerate(lines[line]):
                best_value = lines[line][best]
                if is_better(value, best_value) or value == best_value or value != value:
                    best = i
                values[line][i], indices[line][i] = lines[line][best], best
        return values, indices

    return run


def _recurrence(factor: Array, value: Array) -> Array:
    """Return out[i] = factor[i] * out[i - 1] + value[i]."""
    out, state = np.empty_like(value), np.zeros(value.shape[:-1])
    for i in range(value.shape[-1]):
        state = factor[..., i] * state + value[..., i]
        out[..., i] = state
    return out


def _discounted(values: Array, level: Array) -> Array:
    """Return out[i] = sum over j <= i of values[j] * exp(level[i] - level[j])."""
    out = np.zeros_like(values)
    for i in range(values.shape[-1]):
        out[..., i] = (values[..., : i + 1] * np.exp(level[..., i : i + 1] - level[..., : i + 1])).sum(-1)
    return out


SCAN_REFERENCES = {
    "cumsum": _along(lambda lines: np.cumsum(_widen(lines), -1)),
    "cumprod": _along(lambda lines: np.cumprod(_widen(lines), -1)),
    "cummax": _along(_extreme(lambda value, best: value > best)),
    "cummin": _along(_extreme(lambda value, best: value < best)),
    "logcumsumexp": _along(lambda lines: np.logaddexp.accumulate(lines, -1) if lines.size else lines),
    "recurrence": _along(_recurrence),
    "discounted_sum": _along(_discounted),
}
REFERENCES.update(SCAN_REFERENCES)


# Calls


class ScanCall(NamedTuple):
    """Shape and layout of the operands, dimension and direction of a scan."""

    shape: tuple[int, ...]
    layout: str
    dim: int
    reverse: bool = False


# Lines of contiguous elements, adjacent lines (the kernel's vectors run across them), and strided lines. Most lengths
# are no multiples of a vector. One call has a 0-d tensor, one has no elements.
CALLS = [
    ScanCall((5, 17), "contiguous", 1), ScanCall((5, 70), "contiguous", 0, True),
    ScanCall((2, 165), "contiguous", -1, True), ScanCall((17, 5), "transposed", 1),
    ScanCall((3, 5, 18), "permuted", 1), ScanCall((70,), "flipped", 0), ScanCall((), "contiguous", 0),
    ScanCall((33,), "stepped", 0, True), ScanCall((3, 0), "contiguous", 1),
]  # fmt: skip
# Lines that are split into parts: a first launch computes the parts' totals.
LONG_CALLS = [
    ScanCall((40000,), "contiguous", 0),
    ScanCall((9000, 17), "contiguous", 0, True),
    ScanCall((20000, 3), "contiguous", 0),
]
_LONG_CALLS_BY_SELECTION = {
    "full": LONG_CALLS,
    "sizes": LONG_CALLS[:1],
    "schedules": LONG_CALLS[:2],
    "small": [ScanCall((9000,), "contiguous", 0, True)],
}
_CALLS_BY_SELECTION = {
    "full": CALLS,
    "sizes": CALLS[:2],
    "schedules": CALLS[:2] + CALLS[4:5],
    "small": CALLS[:5] + CALLS[6:],
}
# A sum; a combination that does not commute; a pair of value and index. Other ops use the same launches.
_OPS_OF_LONG_CALLS = ("cumsum", "recurrence", "cummax")
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
    calls = list(_CALLS_BY_SELECTION[selection])
    if selection in ("sizes", "schedules") and op.name not in ("cumsum", "recurrence"):
        calls = calls[:1]  # other ops use the same schedules
    elif op.name in _OPS_OF_LONG_CALLS:
        calls += _LONG_CALLS_BY_SELECTION[selection] if op.name == "cumsum" else _LONG_CALLS_BY_SELECTION[selection][:1]
    cases = [_case(op, scan_call, "float32", device) for scan_call in calls]
    dtypes = {"full": _DTYPES[op.name], "small": _DTYPES[op.name][:2]}.get(selection, ())
    return cases + [_case(op, CALLS[0], dtype, device) for dtype in dtypes if has(device, dtype)]


def _case(op: Op, scan_call: ScanCall, dtype: str, device: Device) -> Case:
    rng = np.random.default_rng(7)
    arrays, tensors = [], []
    for p in op.operands:

        def make(shape: tuple[int, ...], name: str = p.name) -> Array:
            return _values(op.name, name, shape, dtype, rng)

        array, operand = with_layout(make, scan_call.shape, scan_call.layout, lambda a: tensor(a, dtype, device))
        if p.name == "level":
            array = _decreasing(array, scan_call)
            operand = tensor(array, dtype, device)
        arrays.append(array)
        tensors.append(operand)
    named: dict[str, Any] = {"dim": scan_call.dim, "dtype": None, "reverse": scan_call.reverse}
    statics = tuple(named[p.name] for p in op.statics)
    reference_options = {p.name: named[p.name] for p in op.statics if p.name != "dtype"}
    inputs = [a if a.dtype.kind in "bui" else a.astype(np.float64) for a in arrays]
    expected = SCAN_REFERENCES[op.name](*inputs, **reference_options)
    sums_integers = op.result == "accumulate" and numpy_of(dtype).kind in "bui"
    result: Any = "int64" if sums_integers else dtype
    if op.name in ("cummax", "cummin"):
        result = (dtype, "int64")
    case = Case(f"{dtype}, {scan_call}", tensors, arrays, expected, result, statics)
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
    if operand == "factor":  # so that the state stays a small multiple of 1/8, which every dtype represents
        return rounded(rng.choice([1, -1, 0], shape, p=[0.5, 0.4, 0.1]), dtype)
    integers = rng.integers(0 if kind == "u" else -16, 17, shape)
    if kind != "f":
        return integers.astype(numpy_of(dtype))
    values = integers / 8
    if op in ("cummax", "cummin") and values.size:  # many equal values, and NaN in the last third
        values.reshape(-1)[values.size * 2 // 3 :: 3] = np.nan
        values.reshape(-1)[: values.size // 3 : 5] = -np.inf if op == "cummax" else np.inf
    return rounded(values, dtype)


def _decreasing(levels: Array, scan_call: ScanCall) -> Array:
    """Sort levels so that none increases along the scan, as `discounted_sum` requires."""
    if not levels.ndim:
        return levels
    levels = np.sort(levels, scan_call.dim)
    return np.ascontiguousarray(levels if scan_call.reverse else np.flip(levels, scan_call.dim))


def scan_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases of contiguous and strided lines, with zeros among the factors."""
    calls = [ScanCall((1, 9), "contiguous", 1), ScanCall((4, 2), "contiguous", 0, True)]
    cases = []
    names, call = differentiable(op), caller(op)
    for scan_call in calls[1:2] if selection == "small" else calls:
        size = int(np.prod(scan_call.shape))
        inputs = []
        for k, p in enumerate(op.operands):
            values = np.random.default_rng(k).permutation(size).reshape(scan_call.shape) / 5 + 0.3
            if p.name == "factor" or op.name == "cumprod":
                values.reshape(-1)[1:size:5] = 0
            if p.name == "level":
                values = _decreasing(values, scan_call)
            inputs.append(tensor(values, "float64", device, p.name in names))
        named = {"dim": scan_call.dim, "dtype": None, "reverse": scan_call.reverse}
        statics = tuple(named[p.name] for p in op.statics)
        cases.append(GradientCase(str(scan_call), lambda *x, s=statics: call(*x, statics=s), inputs, tuple(names)))
    return cases
