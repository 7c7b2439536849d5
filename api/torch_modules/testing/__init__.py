"""Tools for tests of numerical code: `assert_close`, reference functions by name, synthetic devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple, TypeGuard

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .make_tensors import make_tensor

__all__ = [
    "assert_allclose", "assert_close", "default_tolerances", "make_tensor", "resolve_reference", "special_functions",
    "synthetic_device",
]  # fmt: skip

# (rtol, atol), as torch.testing.assert_close has them
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}
_ROOTS = ("numpy", "scipy.special", "math")


def default_tolerances(*operand_dtypes: DType) -> tuple[float, float]:
    """Return PyTorch's (rtol, atol) for comparing values of these dtypes, the loosest of them; (0, 0) for integers.

    Args:
        *operand_dtypes: Dtypes.

    Returns:
        Two floats.

    Example:
        >>> wg.testing.default_tolerances(wg.float32, wg.float16)
        (0.001, 1e-05)
    """
    pairs = [_TOLERANCES.get(d.name, (0.0, 0.0)) for d in operand_dtypes]
    return max((p[0] for p in pairs), default=0.0), max((p[1] for p in pairs), default=0.0)


class _Options(NamedTuple):
    """The options of `assert_close`."""

    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_stride: bool


def assert_close(
    actual: object,
    expected: object,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Assert `|actual - expected| <= atol + rtol * |expected|` for all elements. Infinities must be equal.

    Args:
        actual: A tensor, array or number, or a sequence or mapping of them.
        expected: The same structure.
        rtol: Relative tolerance. Pass both tolerances or neither: then they are those of `default_tolerances`.
        atol: Absolute tolerance.
        equal_nan: Whether NaN equals NaN.
        check_device: Whether two tensors must be on one device.
        check_dtype: Whether dtypes must be equal; Python numbers and lists as `expected` have none.
        check_stride: Whether two tensors must have equal strides.
        msg: Text for the error, or a function that maps the generated text to it.

    Raises:
        AssertionError: With the number of differing elements, and the largest absolute and relative difference.
        ArgumentError: Only one tolerance, or something that is not numeric.

    Example:
        >>> wg.testing.assert_close(wg.tensor([1.0]), wg.tensor([1.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("assert_close: give both rtol and atol, or neither")
    options = _Options(rtol, atol, equal_nan, check_device, check_dtype, check_stride)
    for path, problem in _problems(actual, expected, "", options):
        text = problem + (f"\n\nThe failure is of item {path}" if path else "")
        raise AssertionError(msg(text) if callable(msg) else text if msg is None else msg)


def assert_allclose(
    actual: object, expected: object, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True,
    msg: str = "",
) -> None:  # fmt: skip
    """Call `assert_close` without comparing devices and dtypes; NaNs are equal.

    Args:
        actual: Tensors or what `assert_close` accepts.
        expected: The same form.
        rtol: Relative tolerance; None: by the dtypes.
        atol: Absolute tolerance; None: by the dtypes.
        equal_nan: Whether NaNs are equal.
        msg: Text for the error; "": a generated one.

    Raises:
        AssertionError: With the number of differing elements, and the largest differences.

    Example:
        >>> wg.testing.assert_allclose(wg.tensor([1, 2]), wg.tensor([1.0, 2.0]))
    """
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
        msg=msg or None,
    )  # fmt: skip


def _problems(actual: object, expected: object, path: str, options: _Options) -> Iterator[tuple[str, str]]:
    """Yield (path, description) for every pair that differs."""
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


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _difference(actual: object, expected: object, options: _Options) -> str | None:
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


def _values(value: object) -> tuple[Array, DType]:
    """Return the values of a tensor, array or number as an array, and their dtype."""
    if isinstance(value, Tensor):
        return host_data.host_array(value), value.dtype
    array = np.asarray(value)
    if array.dtype == object:
        raise ArgumentError(f"assert_close: compares tensors, arrays and numbers, not {type(value).__name__}")
    return array, dtypes.from_numpy(array.dtype)


def _mismatch(a: Array, e: Array, rtol: float, atol: float, equal_nan: bool) -> str | None:
    exact = rtol == 0 and atol == 0
    if exact and not equal_nan:
        wrong = a != e
        if not wrong.any():
            return None
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        wide_a, wide_e = a.astype(np.float64), e.astype(np.float64)
        difference = np.abs(wide_a - wide_e)
        if not exact or equal_nan:
            is_equal = a == e
            if equal_nan:
                is_equal |= np.isnan(wide_a) & np.isnan(wide_e)
            allowed = np.isfinite(wide_e) & (difference <= atol + rtol * np.abs(wide_e))
            wrong = ~(is_equal | allowed)
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
    difference: Array,
    wrong: Array,
    a: Array,
    e: Array,
    allowed: float,
) -> str:
    ranked = np.where(wrong, np.where(np.isnan(difference), np.inf, difference), -1.0)
    index = np.unravel_index(int(np.argmax(ranked)), ranked.shape) if ranked.ndim else ()
    location = f" at index {tuple(int(i) for i in index)}" if index else ""
    return (
        f"Largest {kind} difference: {float(difference[index]):.6g}{location}: {a[index].item()!r} where "
        f"{e[index].item()!r} was expected (up to {allowed:g} allowed)"
    )


# Public functions that are not references: they read and write files, or change settings.
_FILES = "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap"
_SETTINGS = "test info get_include show_config show_runtime set_printoptions seterr seterrcall setbufsize"
_NO_FUNCTIONS = frozenset(f"{_FILES} {_SETTINGS}".split())


def resolve_reference(name: str) -> Callable[..., object]:
    """Import the function that a spec's `reference:` names: a public one of numpy, scipy.special or math.

    Args:
        name: Name such as `numpy.sqrt`.

    Returns:
        The function.

    Raises:
        ArgumentError: For any other name.

    Example:
        >>> wg.testing.resolve_reference('math.hypot')(3, 4)
        5.0
    """
    root = next((r for r in _ROOTS if name.startswith(f"{r}.")), None)
    parts = name.removeprefix(f"{root}.").split(".") if root else []
    if not parts or not all(p.isidentifier() and not p.startswith("_") for p in parts) or parts[-1] in _NO_FUNCTIONS:
        raise ArgumentError(f"{name!r} is not a function of {', '.join(_ROOTS)}")
    target: object = _module(root)
    for part in parts:
        # Only objects of these packages: their modules also have attributes such as `os` and `sys`.
        target = getattr(target, part, None)
        module = getattr(target, "__module__", None) or getattr(target, "__name__", "") or ""
        if target is None or not (isinstance(target, np.ufunc) or module.split(".")[0] in ("numpy", "scipy", "math")):
            raise ArgumentError(f"{name!r} is not a function of {', '.join(_ROOTS)}")
    if not callable(target) or isinstance(target, type):
        raise ArgumentError(f"{name!r} is not a function")
    return target


def _module(root: str | None) -> ModuleType:
    if root == "numpy":
        return np
    if root == "math":
        return math
    import scipy.special  # lazy: optional

    return scipy.special


def special_functions() -> ModuleType:
    """Return the module scipy.special.

    Returns:
        Module.

    Raises:
        ImportError: If SciPy is not installed.

    Example:
        >>> try:
        ...     special = wg.testing.special_functions()
        ... except ImportError:
        ...     special = None
        ...
    """
    return _module("scipy.special")


def synthetic_device(index: int, capabilities: str, of: str = "opencl:0") -> Device:
    """Create the device `opencl:<index>`, which runs on the OpenCL device `of` but reports other capabilities.

    Schedules depend on capabilities, so this tests the schedules of other vendors' devices.

    Args:
        index: An index that no real device has.
        capabilities: Fields of `runtime.backends.protocol.Capabilities`, such as `style=gpu,fp64=0,max_group=64`.
        of: Name of the real device.

    Returns:
        `Device`.

    Example:
        >>> if any(device.type == 'opencl' for device in wg.devices()):
        ...     device = wg.testing.synthetic_device(990, 'style=gpu,fp64=0')
        ...
    """
    from ..runtime.backends import opencl  # lazy: imports pyopencl

    new_device = to_device(f"opencl:{index}")
    if new_device._driver is None:
        new_device._driver = opencl.OpenCLDriver(new_device, opencl.devices()[to_device(of).index or 0], capabilities)
    return new_device
