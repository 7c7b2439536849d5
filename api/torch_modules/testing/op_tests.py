"""Tests of the ops of your own specs: what the test modules call that `weftgrad generate --tests` writes.

    TESTS = OpTests(my_ops, references=Path(__file__).with_name("op_references.py"))
    TESTS.check_values("snake", "cpu", "float32")

Values are compared with an independent reference: the NumPy function that the spec's field `reference` names, or a
function of the op's name in op_references.py, which you write. It gets the arguments of the op by name, arrays in
float64, and returns the result (several: a tuple). That file may have two tables as well:

    ARGUMENTS = {"snake": lambda rng: {"input": rng.normal(size=(3, 4)), "alpha": 0.5}}    # instead of random ones
    TOLERANCES = {"snake": {"float16": (2e-3, 1e-4)}}                    # relative and absolute, for values
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias
from unittest import SkipTest

import numpy as np

from .. import autograd
from ..cli import samples
from ..cli.formula import formula_values, has_formula, reference_values
from ..cli.types import OpFunction
from ..codegen.loader import op_from_mapping
from ..codegen.model import Op
from ..creation.from_data import tensor
from ..ops import Namespace
from ..runtime import backends, dtypes
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.dtypes import Array, DType
from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.host_data import host_array
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from . import default_tolerances
from .op_arguments import (
    LAYOUTS,
    Arguments,
    MakeArguments,
    broadcast_shapes,
    call_shapes,
    dtypes_of,
    first_elements,
    rng_of,
    sample,
    takes_any_shape,
    to_arrays,
    with_layout,
)
from .op_comparison import assert_results_close, derivative_problem, is_differentiable, result_dtype, sum_to
from .op_examples import wrong_example_output

__all__ = ["OpTests", "device_names"]

Reference: TypeAlias = Callable[..., object]

# (relative, absolute): of results that were rounded several times, as those of composites and gradients
_ROUNDED_OFTEN = {"float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2), "float32": (1e-5, 1e-5), "float64": (1e-7, 1e-7)}
_BROADCAST_SHAPE = (5, 3, 17)
_ROWS = 11  # a size that no other dimension has: where a result has it, it has 0 for operands without rows


def device_names() -> list[str]:
    """Return the names of the devices of this machine, such as `cpu` and `opencl:0`."""
    return [str(device) for device in backends.available()]


class OpTests:
    """The checks of the ops of a package or of a loaded spec.

    Every check raises `AssertionError` with op, device, dtype and shapes, or `unittest.SkipTest`, which pytest reports
    as skipped, where a device lacks a dtype or an op has no reference.

    Args:
        *namespaces: What has the functions of the ops: generated packages, or results of `wg.ops.load`.
        references: Path of a Python file with references. It may be missing.

    Example:
        >>> from weftgrad.testing.op_tests import OpTests
        >>> spec = '[{op: "cube(input)", kind: pointwise, dtypes: float, out: input ** 3}]'
        >>> OpTests(wg.ops.load(spec)).check_derivatives('cube', 'cpu')
    """

    def __init__(self, *namespaces: ModuleType | Namespace, references: str | Path | None = None):
        self._functions: dict[str, OpFunction] = {}
        for namespace in namespaces:
            self._functions.update(vars(namespace))
        module = _load_module(Path(references)) if references is not None and Path(references).is_file() else None
        self._references: Mapping[str, Reference] = vars(module) if module else {}
        self._arguments: Mapping[str, MakeArguments] = getattr(module, "ARGUMENTS", {})
        self._tolerances: Mapping[str, Mapping[str, tuple[float, float]]] = getattr(module, "TOLERANCES", {})

    def op(self, name: str) -> Op:
        """Return the op called `name`, as its spec has it."""
        return op_from_mapping(registry[name].spec, "<package>")

    # Which tests an op has

    def with_example(self, names: Iterable[str]) -> list[str]:
        """Return the ops whose specs have the field `example`."""
        return [name for name in names if self.op(name).example]

    def with_formula(self, names: Iterable[str]) -> list[str]:
        """Return the ops whose formula NumPy can compute: those of kinds that say what an element of the result is."""
        return [name for name in names if has_formula(self.op(name))]

    def broadcasting(self, names: Iterable[str]) -> list[str]:
        """Return the ops with several operands that broadcast."""
        return [n for n in names if next(broadcast_shapes(self.op(n)), None) and n not in self._arguments]

    def with_shapes(self, names: Iterable[str]) -> list[str]:
        """Return the ops whose operands may have any shape: those of kinds that work on elements or rows."""
        return [name for name in names if takes_any_shape(self.op(name)) and name not in self._arguments]

    def differentiable(self, names: Iterable[str]) -> list[str]:
        """Return the ops that have a gradient."""
        return [name for name in names if is_differentiable(self.op(name))]

    def with_dtypes(self, names: Iterable[str], *, floating: bool = False) -> list[tuple[str, str]]:
        """Return (op, dtype) for every dtype in which each op is tested; only floating dtypes with `floating`.

        Example:
            >>> from weftgrad.testing.op_tests import OpTests
            >>> spec = '[{op: "flip_bits(input)", kind: pointwise, dtypes: bool, out: ~input}]'
            >>> OpTests(wg.ops.load(spec)).with_dtypes(['flip_bits'])
            [('flip_bits', 'bool')]
        """
        pairs = [(name, dtype) for name in names for dtype in dtypes_of(self.op(name))]
        return [(name, dtype) for name, dtype in pairs if not floating or dtypes.parse(dtype).is_floating_point]

    # Values

    def check_example(self, name: str, device: str) -> None:
        """Check that the call of the spec's field `example` prints the result that stands there."""
        text = wrong_example_output(self.op(name), self._functions[name], to_device(device))
        assert not text, f"{name} on {device}: the example prints {text}"

    def check_values(self, name: str, device: str, dtype: str) -> None:
        """Compare results with the independent reference, for several shapes and dimensions."""
        op = self.op(name)
        reference = self._reference(op)
        if reference is None:
            raise SkipTest(
                f"{name} has no independent reference: write `def {name}({', '.join(p.name for p in op.params)})` with "
                "NumPy into op_references.py beside the tests, or name a NumPy function in the spec's `reference`"
            )
        self._compare_calls(op, to_device(device), _dtype(device, dtype), "the reference", reference)

    def check_formula(self, name: str, device: str, dtype: str) -> None:
        """Compare results with the spec's own formula, computed by NumPy in float64.

        This finds wrong kernels, but not a wrong formula: `check_values` does that.
        """
        op, element_type = self.op(name), _dtype(device, dtype)
        self._compare_calls(op, to_device(device), element_type, "the formula", lambda a: formula_values(op, a))

    def _reference(self, op: Op) -> Callable[[Mapping[str, object]], list[Array] | None] | None:
        """Return what computes the expected results from the arguments, or None."""
        function = self._references.get(op.name)
        if function is not None:
            return lambda arrays: _call_reference(op, function, arrays)
        return (lambda arrays: reference_values(op, arrays)) if op.reference else None

    def _compare_calls(
        self,
        op: Op,
        device: Device,
        dtype: DType,
        source: str,
        expected_of: Callable[[Mapping[str, object]], list[Array] | None],
    ) -> None:
        """Make all calls, whose kernels are compiled together, and compare each with its expected results."""
        calls = [(arguments, arguments.tensors(device, dtype)) for arguments in self._all_arguments(op, dtype)]
        results = [self._call(op, tensors) for _, tensors in calls]
        for (arguments, tensors), outputs in zip(calls, results, strict=True):
            where = f"{op.name} on {device}, {dtype.name}, {arguments.description}, against {source}"
            expected = expected_of(to_arrays(tensors))
            if expected is None:
                raise SkipTest(f"{op.name}: {source} of a {op.kind} op cannot be evaluated by NumPy")
            for actual, desired, rule in zip(outputs, expected, _result_rules(op), strict=False):
                expected_dtype = result_dtype(rule, dtype, tensors)
                assert expected_dtype in (None, actual.dtype), f"{where}: the result is {actual.dtype.name}"
                assert_results_close(actual, desired, self._tolerance(op, actual.dtype), where)

    def _all_arguments(self, op: Op, dtype: DType) -> list[Arguments]:
        if op.name in self._arguments:
            return [Arguments(op, {**_defaults(op), **self._arguments[op.name](rng_of(op))})]
        return [self._sample(op, dtype, shape, dim) for shape, dim in call_shapes(op)]

    def _first_arguments(self, op: Op, dtype: DType) -> Arguments:
        return (
            self._all_arguments(op, dtype)[0] if op.name in self._arguments else self._sample(op, dtype, samples.SHAPE)
        )

    def _sample(self, op: Op, dtype: DType, shape: Sequence[int], dim: object = None) -> Arguments:
        try:
            return sample(op, rng_of(op), dtype, shape, dim)
        except (WeftgradError, LookupError, TypeError, ValueError) as error:
            raise SkipTest(f"{op.name}: no arguments can be drawn ({error}); {_arguments_remedy(op)}") from error

    def _call(self, op: Op, arguments: Mapping[str, object]) -> list[Tensor]:
        try:
            result = self._functions[op.name](**arguments)
        except (ArgumentError, TypeError, ValueError) as error:
            if op.name not in self._arguments:
                error.add_note(f"If these random arguments do not fit the op: {_arguments_remedy(op)}")
            raise
        return list(result) if isinstance(result, tuple) else [result]

    def _tolerance(self, op: Op, dtype: DType) -> tuple[float, float]:
        default = default_tolerances(dtype)
        if op.kind == "composite":
            default = _ROUNDED_OFTEN.get(dtype.name, default)
        return self._tolerances.get(op.name, {}).get(dtype.name, default)

    # Shapes and layouts

    def check_layouts(self, name: str, device: str) -> None:
        """Compare calls on transposed, sliced, stepped and expanded operands with calls on contiguous copies."""
        op = self.op(name)
        dtype = _main_dtype(op, to_device(device))
        contiguous = self._first_arguments(op, dtype).tensors(to_device(device), dtype)
        calls = []
        for layout in LAYOUTS:
            views = {k: with_layout(v, layout) if isinstance(v, Tensor) else v for k, v in contiguous.items()}
            copies = {k: v.contiguous() if isinstance(v, Tensor) else v for k, v in views.items()}
            calls.append((layout, self._call(op, views), self._call(op, copies)))
        for layout, actual, expected in calls:
            for a, e in zip(actual, expected, strict=True):
                where = f"{name} on {device}, {dtype.name}, {layout} operands, against contiguous ones"
                assert_results_close(a, e, self._tolerance(op, a.dtype), where)

    def check_broadcasting(self, name: str, device: str) -> None:
        """Compare calls and gradients of operands that broadcast with those of operands that were expanded before."""
        op = self.op(name)
        dtype = _main_dtype(op, to_device(device))
        calls = []
        for shapes in broadcast_shapes(op):
            arguments = self._sample(op, dtype, _BROADCAST_SHAPE)
            small = {k: first_elements(_array(arguments, k), shape) for k, shape in shapes.items()}
            large = {k: np.broadcast_to(v, _BROADCAST_SHAPE).copy() for k, v in small.items()}
            actual, expected = (
                self._call_with_gradients(arguments.replace(**arrays), to_device(device), dtype)
                for arrays in (small, large)
            )
            calls.append((shapes, actual, expected))
        for shapes, (results, gradients), (expected_results, expanded) in calls:
            where = f"{name} on {device}, {dtype.name}, shapes {list(shapes.values())}, against expanded operands"
            for a, e in zip(results, expected_results, strict=True):
                assert_results_close(a, e, self._tolerance(op, a.dtype), where)
            for operand, gradient in gradients.items():
                desired = sum_to(host_array(expanded[operand]), shapes.get(operand, _BROADCAST_SHAPE))
                assert_results_close(gradient, desired, _ROUNDED_OFTEN[dtype.name], f"{where}, gradient of {operand}")

    def check_no_elements(self, name: str, device: str) -> None:
        """Check the shapes of results and gradients where a dimension has size 0."""
        op = self.op(name)
        dtype = _main_dtype(op, to_device(device))
        dim = next(((-1,) if "tuple" in p.annotation else -1 for p in op.statics if p.name == "dim"), None)
        shapes = []
        for rows in (0, _ROWS):
            arguments = self._sample(op, dtype, (rows, 7), dim)
            results, gradients = self._call_with_gradients(arguments, to_device(device), dtype)
            for operand, gradient in gradients.items():
                where = f"{name} on {device}, {dtype.name}, {arguments.description}: the gradient of {operand}"
                assert list(gradient.shape) == list(_array(arguments, operand).shape), f"{where} is {gradient.shape}"
            shapes.append([[0 if n == _ROWS else n for n in result.shape] for result in results])
        assert shapes[0] == shapes[1], f"{name} on {device}, {dtype.name}: of (0, 7) operands a result of {shapes[0]}"

    # Derivatives

    def check_derivatives(self, name: str, device: str) -> None:
        """Compare derivatives of first and second order with finite differences, in float64."""
        op = self.op(name)
        tensors = self._first_arguments(op, dtypes.float64).tensors(
            to_device(device), _dtype(device, "float64"), grad=True
        )
        for order, text in ((1, "first"), (2, "second")):
            problem, _ = derivative_problem(self._functions[name], tensors, order)
            assert not problem, f"{name} on {device}, {text} derivatives: {problem}"

    def check_gradients(self, name: str, device: str, dtype: str) -> None:
        """Compare gradients in a dtype with gradients in float64 on `cpu`, for several shapes and dimensions."""
        op = self.op(name)
        element_type = _dtype(device, dtype)
        calls = []
        for arguments in self._all_arguments(op, element_type):
            arrays = to_arrays(arguments.tensors(to_device(device), element_type))
            rounded = arguments.replace(**{k: v for k, v in arrays.items() if isinstance(v, np.ndarray)})
            _, gradients = self._call_with_gradients(rounded, to_device(device), element_type)
            _, expected = self._call_with_gradients(rounded, to_device("cpu"), dtypes.float64)
            calls.append((arguments, gradients, expected))
        tolerance = self._tolerances.get(name, {}).get(dtype, _ROUNDED_OFTEN[dtype])
        for arguments, gradients, expected in calls:
            for operand, gradient in gradients.items():
                where = f"{name} on {device}, {dtype}, {arguments.description}, gradient of {operand}, against float64"
                assert_results_close(gradient, host_array(expected[operand]), tolerance, where)

    def _call_with_gradients(
        self, arguments: Arguments, device: Device, dtype: DType
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the results, and the gradients of their product with fixed numbers, by operand."""
        tensors = arguments.tensors(device, dtype, grad=True)
        results = self._call(arguments.op, tensors)
        inputs = {k: v for k, v in tensors.items() if isinstance(v, Tensor) and v.requires_grad}
        if not is_differentiable(arguments.op):
            return results, {}
        outputs = [result for result in results if result.requires_grad]
        if not inputs or not outputs:
            return results, {}
        rng = np.random.default_rng(0)
        seeds = [tensor(np.round(rng.uniform(-1, 1, o.shape), 1), dtype=o.dtype, device=device) for o in outputs]
        gradients = autograd.grad(outputs, list(inputs.values()), seeds, allow_unused=True)
        return results, {k: g for k, g in zip(inputs, gradients, strict=True) if g is not None}


def _arguments_remedy(op: Op) -> str:
    remedy = "write ARGUMENTS = {%r: …} into op_references.py, as the docstring of weftgrad.testing.op_tests says"
    return remedy % op.name


def _load_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(re.sub(r"\W", "_", path.stem), path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"OpTests: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call_reference(op: Op, function: Reference, arrays: Mapping[str, object]) -> list[Array]:
    """Call a user's reference, and check that it returns as many results as the op."""
    with np.errstate(all="ignore"):  # infinities are expected, too
        result = function(**arrays)
    results = result if isinstance(result, (tuple, list)) else [result]
    count = len(_result_rules(op))
    assert len(results) == count, f"{op.name}: the reference returns {len(results)} results, the op {count}"
    return [np.asarray(part) for part in results]


def _array(arguments: Arguments, name: str) -> Array:
    return np.asarray(arguments.values[name])


def _defaults(op: Op) -> dict[str, object]:
    return {**samples.numbers(op), **samples.statics(op)}


def _dtype(device: str, name: str) -> DType:
    """Return a dtype. Raises `SkipTest` if the device lacks it."""
    if name == "float64" and not to_device(device).driver.capabilities.fp64:
        raise SkipTest(f"{device} has no float64")
    return dtypes.parse(name)


def _main_dtype(op: Op, device: Device) -> DType:
    """Return the dtype for checks that need one only: float64, or float32 on devices without it, or an integer."""
    names = dtypes_of(op)
    if "float64" in names:
        return dtypes.float64 if device.driver.capabilities.fp64 else dtypes.float32
    return dtypes.int32 if "int32" in names else dtypes.bool_


def _result_rules(op: Op) -> list[str]:
    return [output.result for output in registry[op.name].outputs if not output.saved]
