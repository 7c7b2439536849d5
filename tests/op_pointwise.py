"""Test cases of pointwise ops: values over the op's domain, dtypes and promotion, layouts, sizes, special values.

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
    GradientCase,
    caller,
    differentiable,
    has,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
    with_layout,
)

import weftgrad as wg
from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

# For these ops, the sample range in the spec is narrowed for derivatives; values are drawn from the whole domain.
_FORWARD_WIDE = {
    "remainder", "fmod", "floor_divide", "trunc_divide", "trunc_quotient", "true_divide", "reciprocal", "addcdiv",
    "pow",
}  # fmt: skip
_SMALL_INTEGERS = {
    "pow": {"input": (-6, 6), "exponent": (-3, 9)}, "gcd": {"input": (-100, 100), "other": (-100, 100)},
    "lcm": {"input": (-100, 100), "other": (-100, 100)}, "bitwise_left_shift": {"input": (-99, 99), "other": (-2, 33)},
    "bitwise_right_shift": {"input": (-99, 99), "other": (-2, 33)},
}  # fmt: skip


# Optimizer states: running means of squares are positive, and at least the square of the running mean.
_STATE = {"square": (1.0, 3.0), "highest": (1.0, 3.0), "total": (0.5, 3.0), "square_step": (0.5, 3.0),
          "mean": (-0.5, 0.5), "largest": (0.5, 3.0), "step_size": (0.5, 3.0)}  # fmt: skip


def draw(op: Op, parameter: str, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw values of one operand over the op's range. A quarter are whole numbers, to hit ties and kinks."""
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
    """Return the promoted dtype by PyTorch's recorded tables. dtypes: (dtype or Python type, number of dimensions)."""
    letter = {name: x for x, name in LETTERS.items()}
    order = list(LETTERS)
    dims, zeros, numbers = [], [], []
    for name, rank in dtypes:
        (numbers if name in ("bool_", "int_", "float_") else dims if rank else zeros).append(name)
    common = None
    for group in (dims, zeros):
        group_dtype = (
            functools.reduce(lambda a, b: PROMOTE[a][order.index(b)], (letter[n] for n in group)) if group else None
        )
        if group_dtype is not None:
            common = group_dtype if common is None else PROMOTE_SCALAR[common][0][order.index(group_dtype)]
    assert common is not None
    if numbers:  # the widest Python type
        index = max(["bool_", "int_", "float_"].index(n) for n in numbers)
        common = PROMOTE_SCALAR[common][1][index]
    return LETTERS[common]


def values_of(op: Op) -> list[Any]:
    """Return the operands that take part in type promotion."""
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


def make_case(op: Op, operand_specs: Sequence[Operand], rng: np.random.Generator, device: Device, label: str) -> Case:
    """Return a case with one operand for each tensor parameter, as `operand_specs` describes them."""
    arrays: list[Any] = []
    operands: list[Any] = []
    promoted: list[tuple[str, int]] = []
    for parameter, (dtype, shape, layout) in zip([p for p in op.operands if p.is_tensor], operand_specs, strict=True):
        value_dtype = "bool" if parameter.type == "mask" else dtype
        if layout == "number":
            kind = {"b": "bool_", "i": "int_", "u": "int_", "f": "float_"}[numpy_of(dtype).kind]
            low, high = op.fields.get("sample", {}).get(parameter.name, (-2, 2))
            value: Any = {"bool_": True, "int_": int(np.clip(2, low, high)), "float_": float(np.clip(0.75, low, high))}[
                kind
            ]
            operands.append(value)
            arrays.append(value)
        else:

            def make(size: tuple[int, ...], name: str = parameter.name, dtype: str = value_dtype) -> Array:
                return draw(op, name, rng, size, dtype)

            array, operand = with_layout(make, shape, layout, lambda base, d=value_dtype: tensor(base, d, device))
            operands.append(operand)
            arrays.append(array)
            kind = dtype
        if parameter.type == "value":
            promoted.append((kind, len(shape)))
    return _expected(op, operands, arrays, promoted, label)


def _expected(op: Op, operands: list[Any], arrays: list[Any], promoted: list[tuple[str, int]], label: str) -> Case:
    common = common_dtype(promoted)
    letter = next(x for x, name in LETTERS.items() if name == common)
    result = results_of(op)[letter]
    assert result != "-", f"{op.name} takes {common}, PyTorch's does not: say what it should give"
    numbers = [_number(op, p.name, common) for p in op.operands if not p.is_tensor]
    expected = reference_values(op, arrays, numbers, common)
    return Case(label, [*operands, *numbers], arrays, expected, LETTERS[result])


# The numbers of optimizer steps; the optimizers compute some from others: one_minus_rho, for example.
_STEP_NUMBERS = {
    "lr": 0.125, "step_size": 0.25, "weight_decay": 0.25, "sign": -1.0, "momentum": 0.875, "one_minus_dampening": 0.75,
    "beta1": 0.875, "one_minus_beta1": 0.125, "beta2": 0.75, "one_minus_beta2": 0.25, "correction": 0.5, "eps": 0.0625,
    "decay": 0.96875, "alpha": 0.875, "one_minus_alpha": 0.125, "rho": 0.875, "one_minus_rho": 0.125, "grad_size": 0.25,
    "mean_size": 0.125, "rectification": 0.75, "shrink_factor": 0.5, "growth_factor": 1.25, "inverse": 0.25,
    "min_step_size": 0.75, "max_step_size": 2.5, "average_weight": 0.25, "limit": 0.75, "weight": 0.25,
}  # fmt: skip


def _number(op: Op, name: str, common: str) -> Any:
    if op.name.endswith("_step"):
        return _STEP_NUMBERS[name]
    if name in ("sign_bit", "infinity"):
        info = np.iinfo(numpy_of(common))
        return info.min if name == "sign_bit" else info.max // 8 * 7
    return NUMBERS.get(name, 0.75) if numpy_of(common).kind == "f" else 2


def reference_values(op: Op, arrays: Sequence[Any], numbers: Sequence[Any], common: str) -> Any:
    """Return the reference's values: integers in their own dtype, floating values in float64."""
    kind = numpy_of(common).kind
    integral = kind in "biu"
    function = INTEGER_REFERENCES.get(op.name) if integral else None
    function = function or reference_of(op)
    assert function is not None, f"{op.name} has no reference"
    compute_dtype = np.dtype(common) if integral and op.result != "float" else np.dtype(np.float64)
    inputs = [
        np.asarray(a) if p.type == "mask" else np.asarray(a).astype(compute_dtype)
        for p, a in zip([p for p in op.operands if p.is_tensor], arrays, strict=True)
    ]
    with np.errstate(all="ignore"):
        result = function(*inputs, *numbers)
        return tuple(np.asarray(f) for f in result) if isinstance(result, tuple) else np.asarray(result)


SIZES = (1, 15, 16, 17, 63, 64, 65, 1000, 40000)
FEW_SIZES = (1, 17, 65)
MATRIX = (5, 17)


def turn_of(op: Op) -> int:
    """Return the op's index among all ops, by which expensive checks are distributed."""
    return list(specs()).index(op.name)


def covers_all_layouts(op: Op) -> bool:
    """Return True if an op is tested with every layout. The templates handle layouts, so some ops are enough."""
    return turn_of(op) % 8 == 0 or op.name in ("add", "where", "lerp", "exp")


def forms_of(op: Op, selection: str) -> list[tuple[str, list[tuple[tuple[int, ...], str]]]]:
    """Return (label, [(shape, layout) of each operand]): sizes around schedule boundaries, and layout classes."""
    count = sum(p.is_tensor for p in op.operands)

    def uniform(shape: tuple[int, ...], layout: str) -> list[tuple[tuple[int, ...], str]]:
        return [(shape, layout)] * count

    if op.fields.get("multi_tensor"):  # called for single tensors only if they have gaps
        return [("17 elements", uniform((17,), "contiguous")), ("sliced", uniform(MATRIX, "sliced"))]
    small = selection == "small"
    # The largest size runs in the thread pool, which on `cpu` has a compiler of its own.
    sizes = FEW_SIZES if small else SIZES if covers_all_layouts(op) or selection != "full" else SIZES[:-1]
    forms = [(f"{n} elements", uniform((n,), "contiguous")) for n in sizes]
    forms += [("empty", uniform((3, 0), "contiguous")), ("0-d", uniform((), "contiguous"))]
    forms += [(layout, uniform(MATRIX, layout)) for layout in ("transposed", "sliced")]
    full, row, column = (MATRIX, "contiguous"), ((17,), "contiguous"), ((5, 1), "contiguous")
    zero, number, transposed = ((), "contiguous"), ((), "number"), (MATRIX, "transposed")
    mixes = [(full, number), (number, full), (column, row)]
    if covers_all_layouts(op):
        mixes += [(full, row), (full, transposed), (full, zero), (row, full), (zero, full)]
        mixes += [((MATRIX, "sliced"), (MATRIX, "expanded"))]
        forms += [(layout, uniform(MATRIX, layout)) for layout in ("stepped", "expanded")]
        forms += [("flipped", uniform((70,), "flipped")), ("three dimensions", uniform((3, 5, 18), "permuted"))]
    if count == 1:
        return forms
    for mix in mixes if selection != "sizes" else []:
        if mix[0] == number and op.result.startswith("like:"):  # the first operand must be a tensor
            continue
        remaining = list(
            itertools.islice(itertools.cycle([full, row, column] if number not in mix else [full]), count - 2)
        )
        forms.append((" with ".join(f"{layout} {list(shape)}" for shape, layout in mix), [*mix, *remaining]))
    return forms


FLOATS, INTEGERS = ("float32", "float64", "float16", "bfloat16"), ("int8", "int16", "int32", "int64", "uint8")


def accepted_dtypes(op: Op) -> list[str]:
    """Return the dtypes that an op accepts."""
    takes = {"float": "f", "numeric": "fi", "integer": "i", "integral": "ib", "bool": "b", "all": "fib"}[op.dtypes]
    takes = "fib" if op.result == "float" else takes
    dtypes_by_letter = {"f": FLOATS, "i": INTEGERS, "b": ("bool",)}
    names = [d for c in takes for d in dtypes_by_letter[c]]
    letter = {name: x for x, name in LETTERS.items()}
    return [d for d in names if results_of(op)[letter[d]] != "-"]


def pointwise_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases: all layouts and sizes in one dtype, other dtypes contiguous and strided, and special values."""
    rng = np.random.default_rng(len(op.name))
    tensors = [p for p in op.operands if p.is_tensor]
    count = len(tensors)
    dtypes = [d for d in accepted_dtypes(op) if has(device, d)]
    first = next(d for d in ("float32", "int32", "bool") if d in dtypes)
    cases = []
    masks = [i for i, p in enumerate(tensors) if p.type != "value"]
    for label, form in forms_of(op, selection):
        if any(form[i][1] == "number" for i in masks) or (count == 1 and form[0][1] == "number"):
            continue
        cases.append(make_case(op, [(first, s, layout) for s, layout in form], rng, device, label))
    for dtype in _other_dtypes(op, first, dtypes, selection):
        cases.append(make_case(op, [(dtype, (65,), "contiguous")] * count, rng, device, "65 elements"))
    if any(p.name == "weight_decay" for p in op.operands):
        return cases  # optimizer steps: squares and sums of the largest numbers overflow, in one order or another
    if selection == "full" and len(dtypes) > 1 and turn_of(op) % 2:  # strided in one other dtype; every second op
        dtype = dtypes[1 + turn_of(op) % (len(dtypes) - 1)]
        cases.append(make_case(op, [(dtype, MATRIX, "stepped")] * count, rng, device, "stepped"))
    if selection == "full" and op.dtypes not in ("integral", "integer") and op.name not in UNUSUAL:
        cases += special_cases(op, device)
    return cases


def _other_dtypes(op: Op, first: str, dtypes: list[str], selection: str) -> list[str]:
    """Return all other dtypes for some ops, and for the rest one of each class, varying from op to op."""
    others = [d for d in dtypes if d != first]
    turn = turn_of(op)
    if selection == "full" and covers_all_layouts(op) and not op.fields.get("multi_tensor"):
        return others
    if selection == "sizes":
        return []
    if op.fields.get("multi_tensor"):
        return [d for d in others if d == ("float64", "float16", "bfloat16")[turn % 3]]
    classes = [("float16", "bfloat16"), ("int8", "int16", "int32", "uint8"), ("bool",)]
    classes += [("float64",), ("int64",)] if selection in ("full", "small") else []
    selected = {dtype_class[turn % len(dtype_class)] for dtype_class in classes}
    return [d for d in others if d in selected]


# Ops whose results for special values differ from the reference's, and why.
UNUSUAL: dict[str, str] = {
    **dict.fromkeys(
        ("logits_error", "weighted_logits_error", "probability_error", "divergence", "log_divergence"),
        "a loss of infinities, or of targets that are no probabilities, is undefined; so are formulas for it",
    ),
    **dict.fromkeys(
        (
            "hermite_polynomial_h",
            "hermite_polynomial_he",
            "laguerre_polynomial_l",
            "legendre_polynomial_p",
            *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
        ),
        "polynomials of the largest numbers are infinite here; in SciPy, infinity minus infinity gives NaN",
    ),
    "airy_ai": "SciPy's is NaN far from 0",
    "hurwitz_zeta": "of a NaN SciPy's may be infinite",
    **dict.fromkeys(("lerp", "average_step"), "differences of the largest numbers overflow, as in PyTorch"),
    "trunc_divide": "for integers; div(rounding_mode='trunc') of floating numbers is trunc(input / other)",
}


# Sums of products: if the product overflows, a fused multiply-add may still be finite, unlike separate operations.
FUSED = ("add_scaled", "addcmul", "poisson_error")


def special_cases(op: Op, device: Device) -> list[Case]:
    """Return cases with NaN, infinities, signed zeros, large and tiny numbers, in all pairs."""
    tensors = [p for p in op.operands if p.is_tensor]
    cases = []
    for dtype in ("float32", "float64"):
        if dtype not in accepted_dtypes(op) or not has(device, dtype):
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
            tensor(a, dtype if p.type == "value" else "bool", device) for p, a in zip(tensors, arrays, strict=True)
        ]
        cases.append(_expected(op, operands, arrays, [(dtype, 1)], "special values"))
    return cases


def smooth(op: Op, position: int, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return values in the op's range that are not near a kink: near integers, halves or values of other operands."""
    parameter = op.operands[position]
    low, high = op.fields.get("sample", {}).get(parameter.name, (-4.0, 4.0))
    cell = (high - low) / 32 if high - low < 2 else 0.125
    count = max(1, int((high - low) / cell))
    centre = low + cell * (rng.integers(0, count, shape) + 0.5)
    return np.asarray(centre + cell * (0.22 * position + rng.uniform(-0.05, 0.05, shape)))


FORMS = {"same": ((3, 20), (3, 20), (3, 20)), "broadcast": ((3, 20), (20,), (3, 1))}


def gradient_inputs(op: Op, form: str, device: Device) -> list[Any]:
    """Return float64 operands of a pointwise op, and its numbers."""
    rng = np.random.default_rng(7)
    names = differentiable(op)
    inputs: list[Any] = []
    shapes = iter(FORMS[form])
    for position, p in enumerate(op.operands):
        if not p.is_tensor:
            inputs.append(NUMBERS.get(p.name, 0.75))
            continue
        shape = next(shapes)
        if p.type == "mask":
            inputs.append(wg.tensor(rng.random(shape) > 0.5, device=device))
        else:
            inputs.append(tensor(smooth(op, position, rng, shape), "float64", device, grad=p.name in names))
    return inputs


def pointwise_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return one gradient case, with broadcast operands if there are several."""
    form = "broadcast" if sum(p.is_tensor for p in op.operands) > 1 else "same"
    return [GradientCase(form, caller(op), gradient_inputs(op, form, device), tuple(differentiable(op)))]
