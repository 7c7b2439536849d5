"""The test cases of the generated suite: for every op of the specs, calls with expected results and derivatives.

    for name in names():
        check(name, device)              compares the values of every case with references
        check_derivatives(name, device)  compares first and second derivatives with finite differences

Other suites run the same cases on their device, or fewer of them with another `selection` (`op_devices.SELECTIONS`).
WEFTGRAD_TEST_DEVICE runs the whole suite on another device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from op_attention import attention_cases, attention_gradient_cases
from op_ctc import ctc_cases, ctc_gradient_cases
from op_devices import *  # noqa: F403
from op_devices import device_of
from op_factorizations import FACTORIZATIONS, factorization_cases, factorization_gradient_cases
from op_norms import NORMS, norm_cases, norm_gradient_cases
from op_pointwise import *  # noqa: F403
from op_pointwise import pointwise_cases, pointwise_gradient_cases
from op_recurrent import recurrent_cases, recurrent_gradient_cases
from op_references_recurrent import RECURRENT_REFERENCES
from op_running import *  # noqa: F403
from op_running import (
    Array,
    Case,
    GradientCase,
    caller,
    check_cases,
    check_gradients,
    compare_derivatives,
    differentiable,
    has,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
    with_layout,
    without_float64,
)
from op_scan import scan_cases, scan_gradient_cases
from op_sort import sort_cases, sort_gradient_cases
from op_tables import TABLE, table_cases, table_gradient_cases
from op_window import window_cases, window_gradient_cases

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

ONCE = ("ctc_alpha",)  # only once differentiable


def names() -> list[str]:
    """Return the names of the ops that have test cases."""
    return [name for name, op in specs().items() if op.kind in _CASES]


def cases(name: str, device: Device, selection: str = "full") -> list[Case]:
    """Return the cases of an op for a selection. Raises `KeyError` if no spec has the op."""
    op = specs()[name]
    if name in NORMS:
        return norm_cases(op, device, selection)
    if name in RECURRENT_REFERENCES:
        return recurrent_cases(op, device, selection)
    if op.kind == "reduction" and name in TABLE:
        return table_cases(op, device, selection)
    return _CASES[op.kind](op, device, selection) if op.kind in _CASES else []


def gradient_cases(name: str, device: Device, selection: str = "full") -> list[GradientCase]:
    """Return the gradient cases of an op; none if it is not differentiable."""
    op = specs()[name]
    if name in RECURRENT_REFERENCES:
        return recurrent_gradient_cases(op, device, selection)
    if name in NORMS:
        return norm_gradient_cases(op, device) if differentiable(op) else []
    return _GRADIENT_CASES[op.kind](op, device, selection) if op.kind in _GRADIENT_CASES and differentiable(op) else []


def check(name: str, device: Device, selection: str = "full") -> None:
    """Check the values of all cases of an op. Raises `AssertionError` that names the failing case."""
    check_cases(specs()[name], cases(name, device, selection), device, str(device))


def check_derivatives(name: str, device: Device, selection: str = "full") -> None:
    """Compare first and second derivatives (of ops in `ONCE` only the first) with finite differences.

    On a device without float64, compare them with those of `cpu`.
    """
    has_double = has(device, "float64")
    table = gradient_cases(name, device, selection)
    with without_float64():
        references = table if has_double else gradient_cases(name, device_of("cpu"), selection)
    for case, reference in zip(table, references, strict=True):
        try:
            if has_double:
                check_gradients(name, case.func, case.inputs, device, second=name not in ONCE, atol=case.atol)
            else:
                compare_derivatives(name, case, reference, device, name not in ONCE)
        except Exception as error:
            error.add_note(f"of {name}, {case.label}")
            raise


# Reductions

_ACCUMULATE, _FLOAT, _INDEX = (
    ("sum", "prod", "sum_squares"),
    ("mean", "euclidean_norm", "absolute_sum", "largest_magnitude"),
    ("argmax", "argmin", "count_nonzero"),
)


def _reduced(name: str, dtype: str) -> tuple[str, ...]:
    """Return the dtypes of an op's results, by PyTorch's rules."""
    integral = numpy_of(dtype).kind in "biu"
    if name in _ACCUMULATE:
        return ("int64" if integral else dtype,) * (4 if name == "prod" else 1)
    if name in _FLOAT:
        return ("float32" if integral else dtype,)
    if name in _INDEX:
        return ("int64",)
    if name in ("any", "all"):
        return ("bool",)
    if name in ("index_bounds", "amax", "amin", "max_elements", "min_elements"):
        return (dtype, dtype)
    return (dtype, "int64") if name in ("max_dim", "max_plane", "min_dim") else (dtype,)


REDUCED_SHAPES = [
    ((), "contiguous"), ((65,), "contiguous"), ((40000,), "contiguous"), ((5, 17), "contiguous"),
    ((17, 5), "transposed"), ((3, 5, 18), "permuted"),
]  # fmt: skip
_SHAPES = {"full": REDUCED_SHAPES, "small": REDUCED_SHAPES[:2] + REDUCED_SHAPES[3:5]}


def reduction_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases for every dimension of all shapes in float32, and of a matrix in other classes of dtypes."""
    rng = np.random.default_rng(2)
    shapes = _SHAPES.get(selection, REDUCED_SHAPES[2:4])
    cases: list[Case] = []
    for dtype in ("float32", "int32", "bool") if selection == "full" else ("float32", "int32"):
        kind = numpy_of(dtype).kind
        if op.dtypes == "integer" and kind not in "iu":
            continue
        if op.dtypes == "float" and op.result != "float" and kind != "f":
            continue
        for shape, layout in shapes if dtype == "float32" else REDUCED_SHAPES[3:4]:

            def make(size: tuple[int, ...], dtype: str = dtype, kind: str = kind) -> Array:
                if kind == "f":  # near 1, so that products do not overflow; some values are equal
                    step = 0.1 if op.name == "prod" else 1
                    return rounded(1 + np.round(rng.uniform(-1, 1, size), 2) * step, dtype)
                return rng.random(size) > 0.5 if kind == "b" else rng.integers(-3, 4, size).astype(dtype)

            array, operand = with_layout(make, shape, layout, lambda a, d=dtype: tensor(a, d, device))
            cases += [
                _reduction(op, array, operand, dtype, dim, len(cases) + i) for i, dim in enumerate(_dims(op, shape))
            ]
    return cases


def _dims(op: Op, shape: tuple[int, ...]) -> list[Any]:
    """Return the values of `dim`: None if allowed, each dimension, and a pair of dimensions if allowed."""
    names = [p.name for p in op.statics]
    if "dim" not in names:
        return [None]
    dims: list[Any] = [] if _one_dim(op) else [None]
    if not shape:
        return dims
    many = any("Sequence" in p.annotation for p in op.statics)
    return dims + list(range(-1, len(shape) - 1)) + ([(0, -1)] if many and len(shape) > 1 else [])


def _one_dim(op: Op) -> bool:
    return any(p.name == "dim" and p.annotation == "int" for p in op.statics)


def _reduction(op: Op, array: Array, operand: Any, dtype: str, dim: Any, turn: int) -> Case:
    reference, options = reference_of(op), {"dim": dim, "keepdim": turn % 2 == 0, "dtype": None}
    assert reference is not None, f"{op.name} has no reference"
    inputs = array.astype(np.float64) if numpy_of(dtype).kind == "f" else array
    expected = reference(inputs, axis=dim, keepdims=options["keepdim"])
    statics = tuple(options[p.name] for p in op.statics)
    tolerance = (2e-5, 2e-5) if dtype == "float32" else (2e-3, 2e-3)
    label = f"strides {array.strides}"
    return Case(label, [operand], [array], expected, _reduced(op.name, dtype), statics, tolerance)


def reduction_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases of a matrix, reduced along all dimensions and along one."""
    values = np.random.default_rng(5).permutation(60).reshape(3, 20) / 40 + 0.3  # distinct and nonzero
    call, cases = caller(op), []
    for dim in (1, 0) if _one_dim(op) else (None, 1):
        options = {"dim": dim, "keepdim": dim == 1, "dtype": None}
        statics = tuple(options[p.name] for p in op.statics)
        x = tensor(values, "float64", device, True)
        cases.append(GradientCase(f"dim {dim}", lambda x, s=statics: call(x, statics=s), [x], ("input",)))
    return cases


def custom_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return cases of custom ops: convolution, attention, CTC, factorizations."""
    if op.name.startswith("ctc"):
        return ctc_cases(op, device, selection)
    if op.name in FACTORIZATIONS:
        return factorization_cases(op, device, selection)
    return (attention_cases if op.name.startswith("attention") else table_cases)(op, device, selection)


def custom_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return gradient cases of custom ops."""
    if op.name.startswith("ctc"):
        return ctc_gradient_cases(op, device)
    if op.name in FACTORIZATIONS:
        return factorization_gradient_cases(op, device)
    return (attention_gradient_cases if op.name.startswith("attention") else table_gradient_cases)(
        op, device, selection
    )


_TABLED = ("rowwise", "contraction", "index", "view", "random")
_CASES = {
    "pointwise": pointwise_cases, "reduction": reduction_cases, "scan": scan_cases, "sort": sort_cases,
    "window": window_cases, "custom": custom_cases, **dict.fromkeys(_TABLED, table_cases),
}  # fmt: skip
_GRADIENT_CASES = {
    "pointwise": pointwise_gradient_cases, "reduction": reduction_gradient_cases, "scan": scan_gradient_cases,
    "sort": sort_gradient_cases, "window": window_gradient_cases, "custom": custom_gradient_cases,
    **dict.fromkeys(_TABLED, table_gradient_cases),
}  # fmt: skip
