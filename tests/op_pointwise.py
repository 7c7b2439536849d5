"""Cases of pointwise ops: values over the op's domain, dtypes and how they promote, layouts, sizes, special values.

Expected values come from `op_references.py`, never from the op's own expression.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from op_references import INTEGER_REFERENCES, LETTERS, PROMOTE, PROMOTE_SCALAR, results_of
from op_running import (
    Array,
    Case,
    Slopes,
    caller,
    differentiable,
    has,
    laid_out,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
)

import weftgrad as wg
from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

# Ranges narrower than the op's domain serve its derivatives only.
_FORWARD_WIDE = {"remainder", "fmod", "floor_divide", "trunc_divide", "true_divide", "reciprocal", "addcdiv", "pow"}
_SMALL_INTEGERS = {
    "pow": {"input": (-6, 6), "exponent": (-3, 9)}, "gcd": {"input": (-100, 100), "other": (-100, 100)},
    "lcm": {"input": (-100, 100), "other": (-100, 100)}, "bitwise_left_shift": {"input": (-99, 99), "other": (-2, 33)},
    "bitwise_right_shift": {"input": (-99, 99), "other": (-2, 33)},
}  # fmt: skip


# Running means of squares are positive, and at least the square of the running mean.
_STATE = {"square": (1.0, 3.0), "highest": (1.0, 3.0), "total": (0.5, 3.0), "change": (0.5, 3.0), "mean": (-0.5, 0.5),
          "norm": (0.5, 3.0), "size": (0.5, 3.0)}  # fmt: skip


def draw(op: Op, parameter: str, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Values of one operand: over the op's range, a quarter of them whole numbers, so that there are ties and kinks."""
    kind = numpy_of(dtype).kind
    low, high = (None, None) if op.name in _FORWARD_WIDE else op.fields.get("sample", {}).get(parameter, (None, None))
    if op.name.endswith("_step"):
        low, high = _STATE.get(parameter, (None, None))
    if kind == "b":
        return rng.random(shape) > 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        if op.name in _SMALL_INTEGERS:
            low, high = _SMALL_INTEGERS[op.name][parameter]
        elif op.result == "float":
            low, high = (-4, 4) if low is None else (int(np.ceil(low)), int(np.floor(high)))
        else:
            low, high = info.min, info.max
        if low > high:
            low = high = 1
        wide = rng.integers(max(low, info.min), min(high, info.max), shape, np.int64, endpoint=True)
        near = np.clip(rng.integers(-3, 4, shape), max(low, info.min), min(high, info.max))
        return np.asarray(np.where(rng.random(shape) < 0.5, wide, near)).astype(dtype)
    low, high = (-3.0, 3.0) if low is None else (low, high)
    values = rng.uniform(low, high, shape)
    values = np.where(rng.random(shape) < 0.25, np.clip(np.round(values), low, high), values)
    return rounded(np.asarray(values), dtype)


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-30, -1e-30, 1e4, -1e4, 3e38, -3e38)

Operand = tuple[str, tuple[int, ...], str]  # dtype (or "number"), shape, layout


def common_dtype(dtypes: Sequence[tuple[str, int]]) -> str:
    """The dtype that operands meet in, by the recorded tables: (dtype or Python type, number of dimensions) each."""
    letter = {name: x for x, name in LETTERS.items()}
    order = list(LETTERS)
    dims, zeros, numbers = [], [], []
    for name, rank in dtypes:
        (numbers if name in ("bool_", "int_", "float_") else dims if rank else zeros).append(name)
    found = None
    for group in (dims, zeros):
        joined = (
            functools.reduce(lambda a, b: PROMOTE[a][order.index(b)], (letter[n] for n in group)) if group else None
        )
        if joined is not None:
            found = joined if found is None else PROMOTE_SCALAR[found][0][order.index(joined)]
    assert found is not None
    if numbers:  # the widest of them
        which = max(["bool_", "int_", "float_"].index(n) for n in numbers)
        found = PROMOTE_SCALAR[found][1][which]
    return LETTERS[found]


def values_of(op: Op) -> list[Any]:
    """The operands that take part in promotion."""
    return [p for p in op.operands if p.is_tensor and p.type == "value"]


NUMBERS = {
    "alpha": -1.5,
    "value": 0.75,
    "first": -1.375,
    "last": 1.125,
    "bins": 5.0,
    "negative_slope": 0.25,
    "order": 2.0,
    "beta": 1.5,
    "threshold": 2.0,
    "min_val": -0.5,
    "max_val": 1.25,
}


def make_case(op: Op, given: Sequence[Operand], rng: np.random.Generator, place: Device, label: str) -> Case:
    """A case with operands as `given` describes them, one for each tensor parameter."""
    arrays: list[Any] = []
    operands: list[Any] = []
    described: list[tuple[str, int]] = []
    for parameter, (dtype, shape, layout) in zip([p for p in op.operands if p.is_tensor], given, strict=True):
        drawn_as = "bool" if parameter.type == "mask" else dtype
        if layout == "number":
            kind = {"b": "bool_", "i": "int_", "u": "int_", "f": "float_"}[numpy_of(dtype).kind]
            low, high = op.fields.get("sample", {}).get(parameter.name, (-2, 2))
            value: Any = {"bool_": True, "int_": int(np.clip(2, low, high)), "float_": float(np.clip(0.75, low, high))}[
                kind
            ]
            operands.append(value)
            arrays.append(value)
        else:

            def make(size: tuple[int, ...], name: str = parameter.name, dtype: str = drawn_as) -> Array:
                return draw(op, name, rng, size, dtype)

            array, made = laid_out(make, shape, layout, lambda base, d=drawn_as: tensor(base, d, place))
            operands.append(made)
            arrays.append(array)
            kind = dtype
        if parameter.type == "value":
            described.append((kind, len(shape)))
    return _expected(op, operands, arrays, described, label)


def _expected(op: Op, operands: list[Any], arrays: list[Any], described: list[tuple[str, int]], label: str) -> Case:
    common = common_dtype(described)
    letter = next(x for x, name in LETTERS.items() if name == common)
    result = results_of(op)[letter]
    assert result != "-", f"{op.name} takes {common}, PyTorch's does not: say what it should give"
    numbers = [_number(op, p.name, common) for p in op.operands if not p.is_tensor]
    expected = reference_values(op, arrays, numbers, common)
    return Case(label, [*operands, *numbers], arrays, expected, LETTERS[result])


# Of optimizers' updates, as the optimizers give them: rest is 1 - rho, and so on.
_STEP_NUMBERS = {
    "lr": 0.125, "step_size": 0.25, "weight_decay": 0.25, "sign": -1.0, "momentum": 0.875, "fresh": 0.75,
    "beta1": 0.875, "rest1": 0.125, "beta2": 0.75, "rest2": 0.25, "correction": 0.5, "eps": 0.0625, "decay": 0.96875,
    "alpha": 0.875, "rho": 0.875, "rest": 0.125, "grad_size": 0.25, "mean_size": 0.125, "rectified": 0.75,
    "slower": 0.5, "faster": 1.25, "inverse": 0.25, "least": 0.75, "most": 2.5, "mu": 0.25,
    "limit": 0.75, "weight": 0.25,
}  # fmt: skip


def _number(op: Op, name: str, common: str) -> Any:
    if op.name.endswith("_step"):
        return _STEP_NUMBERS[name]
    return NUMBERS.get(name, 0.75) if numpy_of(common).kind == "f" else 2


def reference_values(op: Op, arrays: Sequence[Any], numbers: Sequence[Any], common: str) -> Any:
    """The reference's values: of integers in their own dtype, of floating numbers in float64."""
    kind = numpy_of(common).kind
    integral = kind in "biu"
    function = INTEGER_REFERENCES.get(op.name) if integral else None
    function = function or reference_of(op)
    assert function is not None, f"{op.name} has no reference"
    wide = np.dtype(common) if integral and op.result != "float" else np.dtype(np.float64)
    given = [
        np.asarray(a) if p.type == "mask" else np.asarray(a).astype(wide)
        for p, a in zip([p for p in op.operands if p.is_tensor], arrays, strict=True)
    ]
    with np.errstate(all="ignore"):
        found = function(*given, *numbers)
        return tuple(np.asarray(f) for f in found) if isinstance(found, tuple) else np.asarray(found)


SIZES = (1, 15, 16, 17, 63, 64, 65, 1000, 40000)
FEW_SIZES = (1, 17, 65)
MATRIX = (5, 17)


def turn_of(op: Op) -> int:
    """The op's place among all, by which ops take turns."""
    return list(specs()).index(op.name)


def thorough(op: Op) -> bool:
    """Whether an op goes through every layout. Layouts are the templates' business, formulas the ops': some ops do."""
    return turn_of(op) % 8 == 0 or op.name in ("add", "where", "lerp", "exp")


def forms_of(op: Op, selection: str) -> list[tuple[str, list[tuple[tuple[int, ...], str]]]]:
    """(label, [(shape, layout) of each operand]): sizes across the boundaries of schedules, and layout classes."""
    count = sum(p.is_tensor for p in op.operands)

    def every(shape: tuple[int, ...], layout: str) -> list[tuple[tuple[int, ...], str]]:
        return [(shape, layout)] * count

    if op.fields.get("multi_tensor"):  # called by itself only where tensors have gaps
        return [("17 elements", every((17,), "contiguous")), ("sliced", every(MATRIX, "sliced"))]
    small = selection == "small"
    # The largest is for work that is shared among cores, by a device and its compiler of their own on `cpu`.
    sizes = FEW_SIZES if small else SIZES if thorough(op) or selection != "full" else SIZES[:-1]
    forms = [(f"{n} elements", every((n,), "contiguous")) for n in sizes]
    forms += [("empty", every((3, 0), "contiguous")), ("0-d", every((), "contiguous"))]
    forms += [(layout, every(MATRIX, layout)) for layout in ("transposed", "sliced")]
    full, row, column = (MATRIX, "contiguous"), ((17,), "contiguous"), ((5, 1), "contiguous")
    zero, number, turned = ((), "contiguous"), ((), "number"), (MATRIX, "transposed")
    mixes = [(full, number), (number, full), (column, row)]
    if thorough(op):
        mixes += [(full, row), (full, turned), (full, zero), (row, full), (zero, full)]
        mixes += [((MATRIX, "sliced"), (MATRIX, "expanded"))]
        forms += [(layout, every(MATRIX, layout)) for layout in ("stepped", "expanded")]
        forms += [("flipped", every((70,), "flipped")), ("three dimensions", every((3, 5, 18), "turned"))]
    if count == 1:
        return forms
    for mix in mixes if selection != "sizes" else []:
        if mix[0] == number and op.result.startswith("like:"):  # the first operand has to have a dtype
            continue
        rest = list(itertools.islice(itertools.cycle([full, row, column] if number not in mix else [full]), count - 2))
        forms.append((" with ".join(f"{layout} {list(shape)}" for shape, layout in mix), [*mix, *rest]))
    return forms


FLOATS, INTEGERS = ("float32", "float64", "float16", "bfloat16"), ("int8", "int16", "int32", "int64", "uint8")


def accepted(op: Op) -> list[str]:
    """The dtypes an op takes."""
    takes = {"float": "f", "numeric": "fi", "integer": "i", "integral": "ib", "bool": "b", "all": "fib"}[op.dtypes]
    takes = "fib" if op.result == "float" else takes
    every = {"f": FLOATS, "i": INTEGERS, "b": ("bool",)}
    found = [d for c in takes for d in every[c]]
    letter = {name: x for x, name in LETTERS.items()}
    return [d for d in found if results_of(op)[letter[d]] != "-"]


def pointwise_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Layouts and sizes in one dtype, every other dtype contiguous and strided, and special values."""
    rng = np.random.default_rng(len(op.name))
    tensors = [p for p in op.operands if p.is_tensor]
    count = len(tensors)
    dtypes = [d for d in accepted(op) if has(place, d)]
    first = next(d for d in ("float32", "int32", "bool") if d in dtypes)
    cases = []
    masks = [i for i, p in enumerate(tensors) if p.type != "value"]
    for label, form in forms_of(op, selection):
        if any(form[i][1] == "number" for i in masks) or (count == 1 and form[0][1] == "number"):
            continue
        cases.append(make_case(op, [(first, s, layout) for s, layout in form], rng, place, label))
    for dtype in _other_dtypes(op, first, dtypes, selection):
        cases.append(make_case(op, [(dtype, (65,), "contiguous")] * count, rng, place, "65 elements"))
    if any(p.name == "weight_decay" for p in op.operands):
        return cases  # updates of optimizers: squares and sums of the largest numbers overflow, here or there
    if selection == "full" and len(dtypes) > 1 and turn_of(op) % 2:  # strided in one other dtype, ops take turns
        dtype = dtypes[1 + turn_of(op) % (len(dtypes) - 1)]
        cases.append(make_case(op, [(dtype, MATRIX, "stepped")] * count, rng, place, "stepped"))
    if selection == "full" and op.dtypes not in ("integral", "integer") and op.name not in UNUSUAL:
        cases += special_cases(op, place)
    return cases


def _other_dtypes(op: Op, first: str, dtypes: list[str], selection: str) -> list[str]:
    """All of them for some ops in full; of the others one in each class, another one for every op."""
    others = [d for d in dtypes if d != first]
    turn = turn_of(op)
    if selection == "full" and thorough(op) and not op.fields.get("multi_tensor"):
        return others
    if selection == "sizes":
        return []
    if op.fields.get("multi_tensor"):
        return [d for d in others if d == ("float64", "float16", "bfloat16")[turn % 3]]
    classes = [("float16", "bfloat16"), ("int8", "int16", "int32", "uint8"), ("bool",)]
    classes += [("float64",), ("int64",)] if selection in ("full", "small") else []
    picked = {each[turn % len(each)] for each in classes}
    return [d for d in others if d in picked]


# Where an op's result for a special value is not the reference's, and why.
UNUSUAL: dict[str, str] = {
    **dict.fromkeys(
        ("logits_error", "weighted_logits_error", "probability_error", "divergence", "log_divergence"),
        "a loss of infinities, or of targets that are no probabilities, is undefined; so are formulas for it",
    ),
    **dict.fromkeys(("lerp", "average_step"), "differences of the largest numbers overflow, as in PyTorch"),
    "trunc_divide": "for integers; div(rounding_mode='trunc') of floating numbers is trunc(input / other)",
}


# Sums of products. Of one whose product overflows, a device that fuses them gives a number, any other inf or NaN.
FUSED = ("add_scaled", "addcmul", "poisson_error")


def special_cases(op: Op, place: Device) -> list[Case]:
    """NaN, infinities, zeros of either sign, large and tiny numbers, in all pairs."""
    tensors = [p for p in op.operands if p.is_tensor]
    cases = []
    for dtype in ("float32", "float64"):
        if dtype not in accepted(op) or not has(place, dtype):
            continue
        columns = list(zip(*itertools.product(SPECIAL, repeat=min(len(tensors), 2)), strict=True))
        while len(columns) < len(tensors):
            columns.append(columns[-1][7:] + columns[-1][:7])
        arrays = [
            rounded(np.array(c), dtype) if p.type == "value" else np.array(c) > 0
            for p, c in zip(tensors, columns, strict=True)
        ]
        if op.name in FUSED:
            large = np.any([np.isfinite(a) & (np.abs(a) > np.finfo(dtype).max / 4) for a in arrays], axis=0)
            arrays = [a[~large] for a in arrays]
        operands = [
            tensor(a, dtype if p.type == "value" else "bool", place) for p, a in zip(tensors, arrays, strict=True)
        ]
        cases.append(_expected(op, operands, arrays, [(dtype, 1)], "special values"))
    return cases


def smooth(op: Op, position: int, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Values in the op's range, away from whole and half numbers and from what other operands have: no kink is near."""
    parameter = op.operands[position]
    low, high = op.fields.get("sample", {}).get(parameter.name, (-4.0, 4.0))
    cell = (high - low) / 32 if high - low < 2 else 0.125
    count = max(1, int((high - low) / cell))
    at = low + cell * (rng.integers(0, count, shape) + 0.5)
    return np.asarray(at + cell * (0.22 * position + rng.uniform(-0.05, 0.05, shape)))


FORMS = {"alike": ((3, 20), (3, 20), (3, 20)), "broadcast": ((3, 20), (20,), (3, 1))}


def gradient_inputs(op: Op, form: str, place: Device) -> list[Any]:
    """float64 operands of a pointwise op, and its numbers."""
    rng = np.random.default_rng(7)
    wanted = differentiable(op)
    found: list[Any] = []
    shapes = iter(FORMS[form])
    for position, p in enumerate(op.operands):
        if not p.is_tensor:
            found.append(NUMBERS.get(p.name, 0.75))
            continue
        shape = next(shapes)
        if p.type == "mask":
            found.append(wg.tensor(rng.random(shape) > 0.5, device=place))
        else:
            found.append(tensor(smooth(op, position, rng, shape), "float64", place, grad=p.name in wanted))
    return found


def pointwise_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """One call, its operands of different shapes where there are several."""
    form = "broadcast" if sum(p.is_tensor for p in op.operands) > 1 else "alike"
    return [Slopes(form, caller(op), gradient_inputs(op, form, place), tuple(differentiable(op)))]
