"""What tests of numerical code need: comparison within tolerances, references by name, devices that are not there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _hosting
from .runtime import dtypes
from .runtime.device import Device
from .runtime.device import device as to_device
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError
from .runtime.tensor import Tensor

__all__ = ["assert_close", "default_tolerances", "resolve_reference", "special_functions", "synthetic_device"]

# (rtol, atol), as torch.testing.assert_close has them
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}
_ROOTS = ("numpy", "scipy.special", "math")


def default_tolerances(*given: DType) -> tuple[float, float]:
    """(rtol, atol) for comparing values of these dtypes: PyTorch's, the loosest of them; (0, 0) for integers."""
    pairs = [_TOLERANCES.get(d.name, (0.0, 0.0)) for d in given]
    return max((p[0] for p in pairs), default=0.0), max((p[1] for p in pairs), default=0.0)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    actual, expected: tensors, arrays or numbers, or sequences and mappings of them. Tolerances are those of
    `default_tolerances` unless both are given. Infinities must be equal; NaN equals NaN only with `equal_nan`.
    `check_device` and `check_stride` compare tensors with tensors only; `check_dtype` leaves Python's numbers and
    lists alone.
    The error names how many elements differ, the largest absolute and relative difference, and where they are.
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("assert_close: give both rtol and atol, or neither")
    options = (rtol, atol, equal_nan, check_device, check_dtype, check_stride)
    for path, problem in _problems(actual, expected, "", options):
        text = problem + (f"\n\nThe failure is of item {path}" if path else "")
        raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg)


def _problems(actual: Any, expected: Any, path: str, options: tuple[Any, ...]) -> Any:
    """(path, what is wrong) of every pair that differs."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(actual) != set(expected):
            yield path, f"The keys differ: {sorted(map(str, actual))} and {sorted(map(str, expected))}"
            return
        for key in expected:
            yield from _problems(actual[key], expected[key], f"{path}[{key!r}]", options)
    elif _is_sequence(expected) and _is_sequence(actual):
        if len(actual) != len(expected):
            yield path, f"The lengths differ: {len(actual)} and {len(expected)}"
            return
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            yield from _problems(a, e, f"{path}[{i}]", options)
    elif actual is None or expected is None:
        if actual is not expected:
            yield path, f"None is not close to anything else: {actual!r} and {expected!r}"
    else:
        problem = _difference(actual, expected, options)
        if problem:
            yield path, problem


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _difference(actual: Any, expected: Any, options: tuple[Any, ...]) -> str | None:
    rtol, atol, equal_nan, check_device, check_dtype, check_stride = options
    (a, a_dtype), (e, e_dtype) = _values(actual), _values(expected)
    if a.shape != e.shape:
        return f"The shapes differ: {list(a.shape)} and {list(e.shape)}"
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        if check_device and actual.device is not expected.device:
            return f"The devices differ: {actual.device} and {expected.device}"
        if check_stride and actual.meta.strides != expected.meta.strides:
            return f"The strides differ: {actual.meta.strides} and {expected.meta.strides}"
    if check_dtype and a_dtype is not e_dtype and isinstance(expected, (Tensor, np.ndarray, np.generic)):
        return f"The dtypes differ: {a_dtype!r} and {e_dtype!r}"
    if rtol is None or atol is None:
        rtol, atol = default_tolerances(a_dtype, e_dtype)
    return _mismatch(a, e, rtol, atol, equal_nan)


def _values(given: Any) -> tuple[np.ndarray[Any, Any], DType]:
    """The numbers of a tensor, array or number, and their dtype."""
    if isinstance(given, Tensor):
        return _hosting.host_array(given), given.dtype
    array = np.asarray(given)
    if array.dtype == object:
        raise ArgumentError(f"assert_close: compares tensors, arrays and numbers, not {type(given).__name__}")
    return array, dtypes.from_numpy(array.dtype)


def _mismatch(
    a: np.ndarray[Any, Any], e: np.ndarray[Any, Any], rtol: float, atol: float, equal_nan: bool
) -> str | None:
    exact = rtol == 0 and atol == 0
    if exact and not equal_nan:
        wrong = a != e
        if not wrong.any():
            return None
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        wide_a, wide_e = a.astype(np.float64), e.astype(np.float64)
        difference = np.abs(wide_a - wide_e)
        if not exact or equal_nan:
            same = a == e
            if equal_nan:
                same |= np.isnan(wide_a) & np.isnan(wide_e)
            allowed = np.isfinite(wide_e) & (difference <= atol + rtol * np.abs(wide_e))
            wrong = ~(same | allowed)
        if not wrong.any():
            return None
        relative = difference / np.abs(wide_e)
    count, total = int(wrong.sum()), a.size
    head = "Values are not equal" if exact else "Values are not close"
    return (
        f"{head}: {count} of {total} elements differ ({100 * count / total:.1f}%)\n"
        f"{_largest('absolute', difference, wrong, a, e, atol)}\n{_largest('relative', relative, wrong, a, e, rtol)}"
    )


def _largest(
    kind: str,
    difference: np.ndarray[Any, Any],
    wrong: np.ndarray[Any, Any],
    a: np.ndarray[Any, Any],
    e: np.ndarray[Any, Any],
    allowed: float,
) -> str:
    ranked = np.where(wrong, np.where(np.isnan(difference), np.inf, difference), -1.0)
    at = np.unravel_index(int(np.argmax(ranked)), ranked.shape) if ranked.ndim else ()
    place = f" at index {tuple(int(i) for i in at)}" if at else ""
    return (
        f"Largest {kind} difference: {float(difference[at]):.6g}{place}: {a[at].item()!r} where "
        f"{e[at].item()!r} was expected (up to {allowed:g} allowed)"
    )


# Public functions that compute nothing: they read and write files, or change how others behave.
_FILES = "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap"
_SETTINGS = "test info get_include show_config show_runtime set_printoptions seterr seterrcall setbufsize"
_NO_FUNCTIONS = frozenset(f"{_FILES} {_SETTINGS}".split())


def resolve_reference(name: str) -> Callable[..., Any]:
    """The function that a spec's `reference:` names, imported now: public, and of numpy, scipy.special or math only.

    Raises `ArgumentError` for any other name.
    """
    root = next((r for r in _ROOTS if name.startswith(f"{r}.")), None)
    parts = name.removeprefix(f"{root}.").split(".") if root else []
    if not parts or not all(p.isidentifier() and not p.startswith("_") for p in parts) or parts[-1] in _NO_FUNCTIONS:
        raise ArgumentError(f"{name!r} is not a function of {', '.join(_ROOTS)}")
    found: Any = _module(root)
    for part in parts:
        # Only what a module of that package offers: modules hold references to `os`, `sys` and others.
        found = getattr(found, part, None)
        module = getattr(found, "__module__", None) or getattr(found, "__name__", "") or ""
        if found is None or not (isinstance(found, np.ufunc) or module.split(".")[0] in ("numpy", "scipy", "math")):
            raise ArgumentError(f"{name!r} is not a function of {', '.join(_ROOTS)}")
    if not callable(found) or isinstance(found, type):
        raise ArgumentError(f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]


def _module(root: str | None) -> Any:
    if root == "numpy":
        return np
    if root == "math":
        return math
    import scipy.special

    return scipy.special


def special_functions() -> Any:
    """scipy.special; ImportError where SciPy is not installed."""
    return _module("scipy.special")


def synthetic_device(index: int, capabilities: str, of: str = "opencl:0") -> Device:
    """`opencl:<index>`, a device that runs on the OpenCL device `of` but claims other `capabilities`, for tests.

    capabilities: fields of `runtime.backends.protocol.Capabilities`, as in `style=gpu,fp64=0,max_group=64`: schedules
    are chosen by them, so that those of other vendors' devices run here. index: one that no present device has.
    """
    from .runtime.backends import opencl

    made = to_device(f"opencl:{index}")
    if made._driver is None:
        made._driver = opencl.OpenCLDriver(made, opencl.devices()[to_device(of).index or 0], capabilities)  # type: ignore[assignment]
    return made
