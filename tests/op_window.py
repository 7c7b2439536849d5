"""Test cases of window ops (pooling, unfold, fold), against loops over windows written from the definitions.

A row is a shape, its layout and the windows over it. Every row is a case in float32, and an op's first row also in
every other dtype. Sums of the values are exact, so that only means are rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from op_references import REFERENCES
from op_running import Array, Case, GradientCase, caller, has, rounded, tensor, with_layout

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """An input's shape and layout, and the windows over its last dimensions. kernel None: adaptive pooling."""

    shape: Ints
    size: Ints
    kernel: Ints | None
    stride: Ints = ()
    padding: Ints = ()
    dilation: Ints = ()
    counted: bool = True
    divisor: int = 0
    layout: str = "contiguous"

    def static(self, name: str) -> Any:
        rank = len(self.size)
        value = getattr(self, name)
        return value or {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank}.get(name, value)


# Widths are larger than a vector and not multiples of it. Strides 1 and 2 are vectorised, others are not.
POOLS = [
    Windows((2, 3, 4, 37), (2, 18), (2, 2), (2, 2)),
    Windows((2, 2, 5, 36), (3, 18), (3, 3), (2, 2), (1, 1), counted=False),
    Windows((3, 2, 4, 22), (4, 22), (3, 3), (1, 1), (1, 1)),
    Windows((2, 3, 5, 4, 6), (3, 3, 3), (3, 2, 3), (2, 1, 2), (1, 0, 1), divisor=5, layout="transposed"),
    Windows((3, 17), (7,), (4,), (3,), (2,), counted=False, layout="sliced"),  # the last window reaches over the end
    Windows((1, 2, 7, 9), (3, 4), None),
    Windows((1, 2, 3, 40), (1, 20), None),  # all windows have the same size
    Windows((2, 3), (5,), None),
    Windows((0, 3, 4, 4), (2, 2), (2, 2), (2, 2)),
]
LARGEST = [
    *POOLS,
    Windows((2, 2, 9, 24), (3, 18), (3, 3), (2, 1), (1, 0), (2, 3)),
    Windows((2, 9), (4,), (3,), (2,), (1,), (2,)),
]
COLUMNS = [
    Windows((2, 3, 4, 37), (2, 18), (2, 2), (2, 2), (0, 0)),
    Windows((2, 2, 5, 20), (5, 20), (3, 3), (1, 1), (1, 1)),
    Windows((2, 6, 7), (3, 3), (2, 3), (2, 1), (1, 0), (2, 2), layout="permuted"),
    Windows((2, 2, 3, 4, 5), (2, 2, 2), (2, 3, 2), (1, 2, 2), (0, 1, 0)),
    Windows((2, 9), (4,), (3,), (2,), (1,), (2,)),
    Windows((1, 4, 5), (2, 2), (2, 3), (2, 2)),
    Windows((0, 3, 4, 4), (2, 2), (2, 2), (2, 2)),
]
ROWS = {
    "average_windows": POOLS, "average_windows_back": POOLS, "average_windows_whole": POOLS[3:5],
    "max_windows": LARGEST, "max_windows_back": LARGEST, "window_columns": COLUMNS, "window_sums": COLUMNS,
    "max_window_values": LARGEST,
}  # fmt: skip


# References


def along(n: int, windows: int, kernel: int | None, stride: int, padding: int, dilation: int) -> list[list[int]]:
    """Return the positions of every window along one dimension, including those outside the input."""
    if kernel is None:
        return [list(range(i * n // windows, -(-(i + 1) * n // windows))) for i in range(windows)]
    return [[i * stride - padding + k * dilation for k in range(kernel)] for i in range(windows)]


def windows(shape: Ints, size: Ints, w: dict[str, Any]) -> Iterator[tuple[Ints, list[Ints], list[list[int]]]]:
    """Yield (index, elements inside, all positions by dimension) of every window over an input of this shape."""
    rank, one = len(size), (1,) * len(size)
    kernel = w.get("kernel") or (None,) * rank
    by_dim = [
        along(*geometry)
        for geometry in zip(shape, size, kernel, w["stride"], w["padding"], w.get("dilation", one), strict=True)
    ]
    for index in itertools.product(*map(range, size)):
        positions = [by_dim[d][i] for d, i in enumerate(index)]
        inside = [[i for i in line if 0 <= i < n] for line, n in zip(positions, shape, strict=True)]
        yield index, list(itertools.product(*inside)), positions


def counts(shape: Ints, inside: list[Ints], positions: list[list[int]], w: dict[str, Any]) -> int:
    if w["divisor"]:
        return int(w["divisor"])
    if not w["counted"]:
        return max(len(inside), 1)
    extents = [sum(i < n + p for i in line) for line, n, p in zip(positions, shape, w["padding"], strict=True)]
    return int(np.prod(extents))


def average(x: Array, size: Ints, **w: Any) -> Array:
    rank = len(size)
    out = np.zeros((*x.shape[:-rank], *size), x.dtype)
    for index, inside, positions in windows(x.shape[-rank:], size, w):
        total = sum((x[(..., *i)] for i in inside), np.zeros(x.shape[:-rank], x.dtype))
        n = counts(x.shape[-rank:], inside, positions, w)
        out[(..., *index)] = total / n if x.dtype.kind == "f" else np.trunc(total / n).astype(x.dtype)
    return out


def average_back(grad: Array, size: Ints, **w: Any) -> Array:
    rank = len(size)
    out = np.zeros((*grad.shape[:-rank], *size), grad.dtype)
    for index, inside, positions in windows(size, grad.shape[-rank:], w):
        for i in inside:
            out[(..., *i)] += grad[(..., *index)] / counts(size, inside, positions, w)
    return out


def largest(x: Array, size: Ints, **w: Any) -> tuple[Array, Array]:
    """Return the last NaN or the first maximum of each window, and its flat index."""
    rank = len(size)
    spatial = x.shape[-rank:]
    values, indices = (np.zeros((*x.shape[:-rank], *size), t) for t in (x.dtype, np.int64))
    for index, inside, _ in windows(spatial, size, w):
        for outer in np.ndindex(*x.shape[:-rank]):
            elements = [x[(*outer, *i)] for i in inside]
            nans = [k for k, v in enumerate(elements) if v != v]
            best = nans[-1] if nans else elements.index(max(elements))
            values[(*outer, *index)], indices[(*outer, *index)] = (
                elements[best],
                np.ravel_multi_index(inside[best], spatial),
            )
    return values, indices


def largest_back(grad: Array, indices: Array, size: Ints, **w: Any) -> Array:
    rank = len(size)
    out = np.zeros((*grad.shape[:-rank], int(np.prod(size))), grad.dtype)
    for outer in np.ndindex(*grad.shape[:-rank]):
        np.add.at(out[outer], indices[outer].reshape(-1), grad[outer].reshape(-1))
    return out.reshape(*grad.shape[:-rank], *size)


def columns(x: Array, size: Ints, **w: Any) -> Array:
    rank, kernel = len(size), w["kernel"]
    padded = np.pad(x, [(0, 0)] * (x.ndim - rank) + [(p, p + 99) for p in w["padding"]])
    taps = []
    for tap in itertools.product(*map(range, kernel)):
        steps = zip(tap, w["dilation"], w["stride"], size, strict=True)
        window_slice = tuple(slice(t * d, t * d + s * n, s) for t, d, s, n in steps)
        taps.append(padded[(..., *window_slice)].reshape(*x.shape[:-rank], int(np.prod(size))))
    stacked = np.stack(taps, -2)
    return stacked.reshape(*x.shape[: -rank - 1], x.shape[-rank - 1] * len(taps), int(np.prod(size)))


def sums(column_values: Array, size: Ints, **w: Any) -> Array:
    """Compute the transpose of `columns`: the columns of element numbers tell where each element came from."""
    kernel = w["kernel"]
    channels = column_values.shape[-2] // int(np.prod(kernel))
    numbers = np.arange(1, channels * int(np.prod(size)) + 1).reshape(channels, *size)
    window_counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, w["stride"], w["padding"], w["dilation"], strict=True)
    )
    positions = columns(numbers, window_counts, **w).reshape(-1)
    flat = column_values.reshape(-1, positions.size)
    out = np.zeros((len(flat), numbers.size + 1), column_values.dtype)
    for row, values in zip(out, flat, strict=True):
        np.add.at(row, positions, values)
    return out[:, 1:].reshape(*column_values.shape[:-2], channels, *size)


REFERENCES |= {
    "average_windows": average, "average_windows_back": average_back, "average_windows_whole": average,
    "max_windows": largest, "max_windows_back": largest_back, "window_columns": columns, "window_sums": sums,
    "max_window_values": lambda x, size, **w: largest(x, size, **w)[0],
}  # fmt: skip

# Cases

_FLOATS = ("float32", "float64", "float16", "bfloat16")
_DTYPES = {
    "average_windows": ("float32", "float16", "bfloat16"), "average_windows_whole": ("int64",),
    **dict.fromkeys(("max_windows", "max_window_values"), ("float32", "float16", "int64", "uint8")),
    "window_columns": ("float32", "int64", "bool"),
}  # fmt: skip


def _call(op: Op, row: Windows) -> tuple[Ints, dict[str, Any], tuple[Any, ...]]:
    """Return (shape of the first operand, arguments of the reference, static arguments) of a row."""
    options = {p.name: row.static(p.name) for p in op.statics}
    rank = len(row.size)
    lead, spatial = row.shape[:-rank], row.shape[-rank:]
    shape = row.shape
    if op.name == "window_sums":
        shape = (*lead[:-1], lead[-1] * int(np.prod(row.kernel)), int(np.prod(row.size)))  # type: ignore[arg-type]
    elif op.name.endswith("_back"):
        shape = (*lead, *row.size)
    if shape != row.shape:
        options["size"] = spatial
    return shape, options, tuple(options[p.name] for p in op.statics)


def _arrays(
    op: Op, row: Windows, shape: Ints, named: dict[str, Any], dtype: str, device: Device, distinct: bool
) -> Any:
    """Return arrays and tensors of the operands."""
    rng = np.random.default_rng(7)

    def make(size: Ints) -> Array:
        count = int(np.prod(size))
        if dtype == "bool":
            return rng.random(size) > 0.5
        values = rng.permutation(count).reshape(size) - count // 2 if distinct else rng.integers(-12, 13, size)
        values = np.abs(values) if dtype == "uint8" else values
        return rounded(values / 8, dtype) if dtype in _FLOATS else values.astype(dtype)

    layout = "transposed" if row.layout == "permuted" and len(shape) != 3 else row.layout
    array, operand = with_layout(make, shape, layout, lambda a: tensor(a, dtype, device))
    if op.name != "max_windows_back":
        return [array], [operand]
    image = rng.integers(-12, 13, row.shape)
    window_options = {k: v for k, v in named.items() if k != "size"}
    _, indices = largest(image, row.size, **window_options)
    return [array, indices], [operand, tensor(indices, "int64", device)]


def window_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return a case for every row, and for the first one in every dtype."""
    dtypes = [d for d in _DTYPES.get(op.name, ("float32", "float16")) if has(device, d)]
    rows = ROWS[op.name]
    if selection == "small":
        rows, dtypes = [row for row in rows if np.prod(row.shape) <= 300], dtypes[:1]
    elif selection != "full":
        dtypes = dtypes[:1]
    cases = [_case(op, row, dtypes[0], device) for row in rows]
    return cases + [_case(op, rows[0], dtype, device) for dtype in dtypes[1:]]


def _case(op: Op, row: Windows, dtype: str, device: Device) -> Case:
    shape, named, statics = _call(op, row)
    arrays, tensors = _arrays(op, row, shape, named, dtype, device, False)
    inputs = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    expected = REFERENCES[op.name](*inputs, **named)
    result = (dtype, "int64") if op.name == "max_windows" else dtype
    exact = (0.0, 0.0) if not op.name.startswith("average") and dtype in _FLOATS else None
    return Case(f"{dtype}, {row}", tensors, arrays, expected, result, statics, exact)


def window_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return float64 gradient cases of the three smallest rows, with distinct elements; one for a `small` selection."""
    sizes = {row: int(np.prod(row.shape) + np.prod(_call(op, row)[0])) for row in ROWS[op.name]}
    rows = sorted((row for row, size in sizes.items() if 0 < size <= 150), key=lambda row: sizes[row])
    if selection == "small":
        rows = [row for row in rows if row.kernel][:1]
    return [_gradient_case(op, row, device) for row in rows[:3]]


def _gradient_case(op: Op, row: Windows, device: Device) -> GradientCase:
    shape, named, statics = _call(op, row)
    _, tensors = _arrays(op, row, shape, named, "float64", device, True)
    tensors[0].requires_grad_(True)
    call = caller(op)

    def run(*tensors_given: Any) -> Any:
        result = call(*tensors_given, statics=statics)
        return result[0] if isinstance(result, tuple) else result

    return GradientCase(str(row), run, tensors, (op.operands[0].name,))
