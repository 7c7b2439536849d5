"""Scans: cases along every kind of line, and references that go from element to element.

A call is an op, the shapes of its operands with their layouts, the dimension, and the direction where the op has one.
Values are exactly representable and so are their sums and products, so that results have to be exactly what is expected
in every dtype, whatever the order in which a schedule combines them; only logarithms and discounts are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from op_references import REFERENCES
from op_running import Array, Case, Slopes, caller, differentiable, has, laid_out, numpy_of, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

__all__ = ["scan_cases", "scan_slopes"]


# References


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of lines (..., n) as one along `dim`, from the end with `reverse`."""

    def run(*arrays: Array, dim: int, reverse: bool = False) -> Any:
        if not arrays[0].ndim:
            found = function(*(a.reshape(1) for a in arrays))
            return tuple(f.reshape(()) for f in found) if isinstance(found, tuple) else found.reshape(())
        moved = [np.moveaxis(a, dim, -1)[..., :: -1 if reverse else 1] for a in arrays]
        found = function(*moved)
        turned = [np.moveaxis(f[..., :: -1 if reverse else 1], -1, dim) for f in _tuple(found)]
        return tuple(turned) if isinstance(found, tuple) else turned[0]

    return run


def _tuple(found: Any) -> tuple[Array, ...]:
    return found if isinstance(found, tuple) else (found,)


def _wide(array: Array) -> Array:
    return array.astype(np.int64) if array.dtype.kind in "bui" else array


def _extreme(better: Callable[[Any, Any], bool]) -> Callable[[Array], tuple[Array, Array]]:
    def run(lines: Array) -> tuple[Array, Array]:
        values, places = np.empty_like(lines), np.empty(lines.shape, np.int64)
        for at in np.ndindex(lines.shape[:-1]):
            best = 0
            for i, value in enumerate(lines[at]):
                so_far = lines[at][best]
                if better(value, so_far) or value == so_far or value != value:
                    best = i
                values[at][i], places[at][i] = lines[at][best], best
        return values, places

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
    """Shape, layout, dimension, direction."""

    shape: tuple[int, ...]
    layout: str
    dim: int
    reverse: bool = False


# Rows in whole vectors and beyond, neighbouring lines in vectors and beyond, lines apart, nothing.
LINES = [
    Line((5, 17), "contiguous", 1), Line((5, 70), "contiguous", 0, True), Line((2, 165), "contiguous", -1, True),
    Line((17, 5), "transposed", 1), Line((3, 5, 18), "turned", 1), Line((70,), "flipped", 0), Line((), "contiguous", 0),
    Line((33,), "stepped", 0, True), Line((3, 0), "contiguous", 1),
]  # fmt: skip
# Lines that are cut into shares, whose totals are made first: few long ones, some rows of them, lines apart.
LONG = [Line((40000,), "contiguous", 0), Line((9000, 17), "contiguous", 0, True), Line((20000, 3), "contiguous", 0)]
_CUT = {"full": LONG, "sizes": LONG[:1], "schedules": LONG[:2], "small": [Line((9000,), "contiguous", 0, True)]}
_LINES = {"full": LINES, "sizes": LINES[:2], "schedules": LINES[:2] + LINES[4:5], "small": LINES[:5] + LINES[6:]}
_WITH_SHARES = ("cumsum", "recurrence", "cummax")  # added up; in order; of two fields, one a position
_DTYPES = {
    "cumsum": ("float64", "float16", "bfloat16", "int32", "uint8", "bool"),
    "cumprod": ("float64", "float16", "int8"),
    "cummax": ("float64", "float16", "uint8", "bool"),
    "cummin": ("bfloat16", "int32"),
    "logcumsumexp": ("float64", "float16"),
    "recurrence": ("float64", "bfloat16"),
    "discounted_sum": ("float64",),
}


def scan_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Lines of every kind in float32, and one matrix in other dtypes."""
    lines = list(_LINES[selection])
    if selection in ("sizes", "schedules") and op.name not in ("cumsum", "recurrence"):
        lines = lines[:1]  # another formula in the same schedules
    elif op.name in _WITH_SHARES:
        lines += _CUT[selection] if op.name == "cumsum" else _CUT[selection][:1]
    found = [_case(op, line, "float32", place) for line in lines]
    dtypes = _DTYPES[op.name] if selection == "full" else _DTYPES[op.name][: 2 * (selection == "small")]
    return found + [_case(op, LINES[0], dtype, place) for dtype in dtypes if has(place, dtype)]


def _case(op: Op, line: Line, dtype: str, place: Device) -> Case:
    rng = np.random.default_rng(7)
    arrays, tensors = [], []
    for p in op.operands:

        def make(shape: tuple[int, ...], name: str = p.name) -> Array:
            return _values(op.name, name, shape, dtype, rng)

        array, made = laid_out(make, line.shape, line.layout, lambda a: tensor(a, dtype, place))
        if p.name == "level":  # sorted along the way
            array, made = _falling(array, line, dtype, place)
        arrays.append(array)
        tensors.append(made)
    named: dict[str, Any] = {"dim": line.dim, "dtype": None, "reverse": line.reverse}
    statics = tuple(named[p.name] for p in op.statics)
    own = {p.name: named[p.name] for p in op.statics if p.name != "dtype"}
    wide = [a if a.dtype.kind in "bui" else a.astype(np.float64) for a in arrays]
    expected = SCAN_REFERENCES[op.name](*wide, **own)
    sums = op.result == "accumulate" and numpy_of(dtype).kind in "bui"
    result: Any = "int64" if sums else dtype
    if op.name in ("cummax", "cummin"):
        result = (dtype, "int64")
    made_case = Case(f"{dtype}, {line}", tensors, arrays, expected, result, statics)
    made_case.tolerance = (0.0, 0.0) if op.name not in ("logcumsumexp", "discounted_sum") else None
    if made_case.tolerance is None and dtype == "float32":
        made_case.tolerance = (4e-6, 4e-6)
    return made_case


def _values(op: str, operand: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    kind = numpy_of(dtype).kind
    if kind == "b":
        return rng.random(shape) > 0.3
    if op == "cumprod":
        values = rng.choice([1, 1, -1, 2, 0.5, 0] if kind == "f" else [1, 1, 2, 3, 0 if kind == "u" else -1], shape)
        return np.asarray(values).astype(numpy_of(dtype)) if kind != "f" else rounded(values, dtype)
    if operand == "factor":  # sums stay multiples of 1/8 of a moderate size
        return rounded(rng.choice([1, -1, 0], shape, p=[0.5, 0.4, 0.1]), dtype)
    whole = rng.integers(0 if kind == "u" else -16, 17, shape)
    if kind != "f":
        return whole.astype(numpy_of(dtype))
    values = whole / 8
    if op in ("cummax", "cummin") and values.size:  # many are equal, and from somewhere on there is a NaN
        values.reshape(-1)[values.size * 2 // 3 :: 3] = np.nan
        values.reshape(-1)[: values.size // 3 : 5] = -np.inf if op == "cummax" else np.inf
    return rounded(values, dtype)


def _falling(array: Array, line: Line, dtype: str, place: Device) -> tuple[Array, Any]:
    """Levels that fall along the way, as the op wants them."""
    if array.ndim:
        array = np.sort(array, line.dim)
        array = np.ascontiguousarray(array if line.reverse else np.flip(array, line.dim))
    return array, tensor(array, dtype, place)


def scan_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """Rows in vectors and lines apart, with zeros among the factors, which are no exception to any derivative."""
    lines = [Line((1, 9), "contiguous", 1), Line((4, 2), "contiguous", 0, True)]
    found = []
    wanted, call = differentiable(op), caller(op)
    for line in lines[1:2] if selection == "small" else lines:
        size = int(np.prod(line.shape))
        inputs = []
        for k, p in enumerate(op.operands):
            values = np.random.default_rng(k).permutation(size).reshape(line.shape) / 5 + 0.3
            if p.name == "factor" or op.name == "cumprod":
                values.reshape(-1)[1:size:5] = 0
            if p.name == "level":
                values = _falling(values, line, "float64", place)[0]
            inputs.append(tensor(values, "float64", place, p.name in wanted))
        named = {"dim": line.dim, "dtype": None, "reverse": line.reverse}
        statics = tuple(named[p.name] for p in op.statics)
        found.append(Slopes(str(line), lambda *x, s=statics: call(*x, statics=s), inputs, tuple(wanted)))
    return found
