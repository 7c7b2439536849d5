"""Test cases of sort ops: a row length for every schedule, every dtype, layouts, ties, NaN, no elements.

Results must be exact.
"""

from __future__ import annotations

import numpy as np
from op_references_sort import bin_sorted, search_sorted, sort_along, top_along
from op_running import Array, Case, GradientCase, caller, has, numpy_of, rounded, tensor, with_layout

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

_ALL_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "bool")
_QUICK_DTYPES = ("float32", "int64")
# Shape, layout, dimension. Long rows are sorted in several passes, and on a CPU from 32768 elements by several cores.
_SHAPES: list[tuple[tuple[int, ...], str, int]] = [
    ((4, 70), "contiguous", 1), ((5, 17), "transposed", 1), ((3, 5, 18), "permuted", 1), ((65,), "flipped", 0),
    ((5, 17), "expanded", 0), ((3, 9), "stepped", -1), ((), "contiguous", -1), ((1, 3), "sliced", 0),
    ((3, 0), "contiguous", 1), ((0, 3), "contiguous", 1), ((2, 1030), "contiguous", 1),
]  # fmt: skip
_LONG_ROW = ((40000,), "contiguous", 0)
_TOP_COUNTS = (2, 17, 3, 1, 5, 9, 1, 1, 0, 2, 300)  # k of top_along, for each of _SHAPES


def sort_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return float32 cases of every shape and of long rows, and the first shape in other dtypes."""
    if op.name == "search_sorted":
        return _searches(device, selection)
    if op.name == "bin_sorted":
        return _bins(device, selection)
    rng = np.random.default_rng(11)
    dtypes = [d for d in (_ALL_DTYPES if selection == "full" else _QUICK_DTYPES) if has(device, d)]
    calls = [("float32", shape, k) for shape, k in zip(_SHAPES, _TOP_COUNTS, strict=True)]
    calls += [(dtype, _SHAPES[0], 7) for dtype in dtypes[1:]]
    if selection == "schedules":
        calls += [("int64", _SHAPES[-1], 300)]
    calls += [("float32", ((1, 3074), "contiguous", 1), 4)]  # the last part of the row has fewer than 4 elements
    if selection != "small":
        calls += [("float32", _LONG_ROW, 4), ("float32", _LONG_ROW, 30000)]
    cases = []
    for case_number, (dtype, (shape, layout, dim), k) in enumerate(calls):
        array, operand = with_layout(
            lambda size, dtype=dtype: _values(rng, size, dtype), shape, layout, lambda a, d=dtype: tensor(a, d, device)
        )
        descending = case_number % 2 == 1
        top = op.name == "top_along"
        statics = (min(k, shape[dim] if shape else 1), dim, descending) if top else (dim, descending)
        expected = top_along(array, *statics) if top else sort_along(array, *statics)
        label = f"{dtype}, {layout}, {statics}"
        cases.append(Case(label, [operand], [array], expected, (dtype, "int64"), statics, (0.0, 0.0)))
    return cases


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw values with many ties; some floats are NaN, infinite, or signed zeros."""
    kind = numpy_of(dtype).kind
    if kind == "b":
        return rng.random(shape) > 0.5
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -100, 100, shape).astype(dtype)
    values = rounded(np.round(rng.standard_normal(shape) * 20) / 4, dtype)
    if values.size > 2000:  # long rows: without ties
        return rounded(rng.standard_normal(shape), dtype)
    draws = rng.integers(0, 24, shape)  # a quarter of the elements is special
    for draw, special in enumerate((np.nan, -np.nan, -np.inf, np.inf, -0.0, 0.0)):
        values = np.where(draws == draw, np.array(special, values.dtype), values)
    return values


def _searches(device: Device, selection: str) -> list[Case]:
    """Return cases of every shape with both sides, each with NaN as the largest number and without NaN."""
    rng = np.random.default_rng(12)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((33,), (5, 9)), ((3, 20), (3, 7)), ((2, 3, 4), (2, 3, 5)), ((1,), (6,)), ((0,), (4,)), ((9,), ()),
        ((5,), (0,)),
    ]  # fmt: skip
    dtypes = [d for d in (_ALL_DTYPES[:-1] if selection == "full" else _QUICK_DTYPES) if has(device, d)]
    calls = [("float32", shapes[i % len(shapes)], i) for i in range(2 * len(shapes))]
    calls += [(dtype, shapes[0], i) for i, dtype in enumerate(dtypes[1:])]
    cases = []
    for dtype, (sequence_shape, values_shape), case_number in calls:
        right = case_number % 2 == 1
        total = case_number % 4 >= 2  # the total order, in which NaN is the largest number
        sequence, values = np.sort(_values(rng, sequence_shape, dtype), -1), _values(rng, values_shape, dtype)
        if not total and numpy_of(dtype).kind == "f":  # test_sorting.py covers comparisons with NaN
            sequence, values = np.sort(np.nan_to_num(sequence), -1), np.asarray(np.nan_to_num(values))
            sequence, values = rounded(sequence, dtype), rounded(values, dtype)
        operands = [tensor(sequence, dtype, device), tensor(values, dtype, device)]
        expected = search_sorted(sequence, values, right, total)
        cases.append(
            Case(f"{dtype}, {right}, {total}", operands, [sequence, values], expected, "int64", (right, total))
        )
    return cases


def _bins(device: Device, selection: str) -> list[Case]:
    """Return cases with evenly spaced, uneven, equal edges, and a single edge."""
    rng = np.random.default_rng(13)
    even, uneven = np.linspace(-3, 3, 13), np.sort(np.round(rng.standard_normal(9) * 8) / 4)
    calls = [("float32", edges) for edges in (even, uneven, np.full(3, 0.25), np.zeros(1))]
    calls += [(d, even) for d in ("float64", "float16", "bfloat16") if selection == "full" and has(device, d)]
    cases = []
    for dtype, edges in calls:
        sequence, values = rounded(edges, dtype), _values(rng, (5, 40), dtype)
        operands = [tensor(sequence, dtype, device), tensor(values, dtype, device)]
        expected = bin_sorted(sequence, np.asarray(values))
        cases.append(Case(f"{dtype}, {edges.size} edges", operands, [sequence, values], expected, "int64", ()))
    return cases


def sort_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases along each dimension of a matrix with distinct elements."""
    call, cases = caller(op), []
    for dim in (1, 0):
        x = tensor(np.random.default_rng(5).permutation(24).reshape(4, 6) / 5.0, "float64", device, True)
        statics = (2, dim, True) if op.name == "top_along" else (dim, dim == 1)
        cases.append(GradientCase(f"dim {dim}", lambda x, s=statics: call(x, statics=s)[0], [x], ("input",)))
    return cases
