"""The table of the generated suite: for every op of the specs, calls with what is expected of them, and their slopes.

    for name in names():
        check(name, place)          values of every case against references
        check_slopes(name, place)   first and second derivatives against differences

Another device goes through the same table with these functions, or through less of it with another `selection` (see
`op_running.SELECTIONS`); WEFTGRAD_TEST_DEVICE moves the whole suite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from op_attention import attention_cases, attention_slopes
from op_ctc import ctc_cases, ctc_slopes
from op_norms import NORMS, norm_cases
from op_pointwise import *  # noqa: F403
from op_pointwise import pointwise_cases, pointwise_slopes
from op_recurrent import recurrent_cases, recurrent_slopes
from op_references_recurrent import RECURRENT_REFERENCES
from op_running import *  # noqa: F403
from op_running import (
    Array,
    Case,
    Slopes,
    caller,
    check_cases,
    check_gradients,
    differentiable,
    laid_out,
    numpy_of,
    reference_of,
    rounded,
    specs,
    tensor,
)
from op_scan import scan_cases, scan_slopes
from op_sort import sort_cases, sort_slopes
from op_tables import table_cases, table_slopes
from op_window import window_cases, window_slopes

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

ONCE = ("ctc_alpha",)  # differentiable once


def names() -> list[str]:
    """The ops that the table has: those of a kind that makes its own cases, and those that have rows."""
    return [name for name, op in specs().items() if op.kind in _CASES]


def cases(name: str, place: Device, selection: str = "full") -> list[Case]:
    """The cases of an op, as many as `selection` says. Raises `KeyError` for an op that is in no spec."""
    op = specs()[name]
    if name in NORMS:
        return norm_cases(op, place, selection)
    if name in RECURRENT_REFERENCES:
        return recurrent_cases(op, place, selection)
    return _CASES[op.kind](op, place, selection) if op.kind in _CASES else []


def slopes(name: str, place: Device, selection: str = "full") -> list[Slopes]:
    """The calls of an op whose derivatives are checked; none where it has no derivatives."""
    op = specs()[name]
    if name in RECURRENT_REFERENCES:
        return recurrent_slopes(op, place, selection)
    return _SLOPES[op.kind](op, place, selection) if op.kind in _SLOPES and differentiable(op) else []


def check(name: str, place: Device, selection: str = "full") -> None:
    """Raise `AssertionError` that names the case unless the op gives what is expected in all of them."""
    check_cases(specs()[name], cases(name, place, selection), place, str(place))


def check_slopes(name: str, place: Device, selection: str = "full") -> None:
    """Raise `AssertionError` unless first and second derivatives, of `ONCE` the first, are what differences say."""
    for each in slopes(name, place, selection):
        try:
            check_gradients(name, each.func, each.inputs, place, second=name not in ONCE, atol=each.atol)
        except Exception as error:
            error.add_note(f"of {name}, {each.label}")
            raise


# Reductions

_ACCUMULATE, _FLOAT, _INDEX = (
    ("sum", "prod", "sum_squares"),
    ("mean", "euclidean_norm"),
    ("argmax", "argmin", "count_nonzero"),
)


def _reduced(name: str, dtype: str) -> tuple[str, ...]:
    """The dtypes of an op's results, as PyTorch's (and NumPy's, apart from the width of float) are."""
    integral = numpy_of(dtype).kind in "biu"
    if name in _ACCUMULATE:
        return ("int64" if integral else dtype,) * (3 if name == "prod" else 1)
    if name in _FLOAT:
        return ("float32" if integral else dtype,)
    if name in _INDEX:
        return ("int64",)
    if name in ("any", "all"):
        return ("bool",)
    if name in ("index_bounds", "amax", "amin"):
        return (dtype, dtype)
    return (dtype, "int64") if name in ("max_dim", "max_plane", "min_dim") else (dtype,)


REDUCED_SHAPES = [
    ((), "contiguous"), ((65,), "contiguous"), ((40000,), "contiguous"), ((5, 17), "contiguous"),
    ((17, 5), "transposed"), ((3, 5, 18), "turned"),
]  # fmt: skip
_SHAPES = {"full": REDUCED_SHAPES, "small": REDUCED_SHAPES[:2] + REDUCED_SHAPES[3:5]}


def reduction_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Every dimension of shapes of every layout class in float32, and of a matrix in other classes of dtypes."""
    rng = np.random.default_rng(2)
    shapes = _SHAPES.get(selection, REDUCED_SHAPES[2:4])
    found: list[Case] = []
    for dtype in ("float32", "int32", "bool") if selection == "full" else ("float32", "int32"):
        kind = numpy_of(dtype).kind
        if op.dtypes == "integer" and kind not in "iu":
            continue
        if op.dtypes == "float" and op.result != "float" and kind != "f":
            continue
        for shape, layout in shapes if dtype == "float32" else REDUCED_SHAPES[3:4]:

            def make(size: tuple[int, ...], dtype: str = dtype, kind: str = kind) -> Array:
                if kind == "f":  # near 1, so that products stay in range; some are equal
                    step = 0.1 if op.name == "prod" else 1
                    return rounded(1 + np.round(rng.uniform(-1, 1, size), 2) * step, dtype)
                return rng.random(size) > 0.5 if kind == "b" else rng.integers(-3, 4, size).astype(dtype)

            array, made = laid_out(make, shape, layout, lambda a, d=dtype: tensor(a, d, place))
            found += [_reduction(op, array, made, dtype, dim, len(found) + i) for i, dim in enumerate(_dims(op, shape))]
    return found


def _dims(op: Op, shape: tuple[int, ...]) -> list[Any]:
    """What `dim` may be: None where the op takes all dimensions, each, and two at once."""
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


def _reduction(op: Op, array: Array, made: Any, dtype: str, dim: Any, turn: int) -> Case:
    reference, options = reference_of(op), {"dim": dim, "keepdim": turn % 2 == 0, "dtype": None}
    assert reference is not None, f"{op.name} has no reference"
    wide = array.astype(np.float64) if numpy_of(dtype).kind == "f" else array
    expected = reference(wide, axis=dim, keepdims=options["keepdim"])
    statics = tuple(options[p.name] for p in op.statics)
    tolerance = (2e-5, 2e-5) if dtype == "float32" else (2e-3, 2e-3)
    label = f"strides {array.strides}"
    return Case(label, [made], [array], expected, _reduced(op.name, dtype), statics, tolerance)


def reduction_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """A matrix by all and by one of its dimensions."""
    values = np.random.default_rng(5).permutation(60).reshape(3, 20) / 40 + 0.3  # no two are equal, none is 0
    call, found = caller(op), []
    for dim in (1, 0) if _one_dim(op) else (None, 1):
        options = {"dim": dim, "keepdim": dim == 1, "dtype": None}
        statics = tuple(options[p.name] for p in op.statics)
        x = tensor(values, "float64", place, True)
        found.append(Slopes(f"dim {dim}", lambda x, s=statics: call(x, statics=s), [x], ("input",)))
    return found


def custom_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Of convolution, of attention and of sequences of labels, all kinds of their own."""
    if op.name.startswith("ctc"):
        return ctc_cases(op, place, selection)
    return (attention_cases if op.name.startswith("attention") else table_cases)(op, place, selection)


def custom_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """Derivatives of the same."""
    if op.name.startswith("ctc"):
        return ctc_slopes(op, place)
    return (attention_slopes if op.name.startswith("attention") else table_slopes)(op, place, selection)


_TABLED = ("rowwise", "contraction", "index", "view", "random")
_CASES = {
    "pointwise": pointwise_cases, "reduction": reduction_cases, "scan": scan_cases, "sort": sort_cases,
    "window": window_cases, "custom": custom_cases, **dict.fromkeys(_TABLED, table_cases),
}  # fmt: skip
_SLOPES = {
    "pointwise": pointwise_slopes, "reduction": reduction_slopes, "scan": scan_slopes, "sort": sort_slopes,
    "window": window_slopes, "custom": custom_slopes, **dict.fromkeys(_TABLED, table_slopes),
}  # fmt: skip
