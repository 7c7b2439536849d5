"""Infrastructure of the generated suite: test cases and their checks; `op_devices` has devices.

The checks take the function to call as an argument, so that `test_mutations.py` can pass a mutated op, and the device,
so that other suites can pass theirs. `op_cases` has the table of cases.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from op_devices import build, collecting
from op_references import REFERENCES

import weftgrad as wg
from weftgrad import testing
from weftgrad.codegen.generate import own_specs
from weftgrad.codegen.loader import load_file
from weftgrad.codegen.model import Op
from weftgrad.runtime import dispatch
from weftgrad.runtime.device import Device
from weftgrad.runtime.records import OpRecord, registry

Array = Any
Call = Callable[..., Any]


# Ops and values


@functools.cache
def specs() -> dict[str, Op]:
    """Return every op of the specs, by name."""
    return {op.name: op for path in own_specs() for op in load_file(path, trust=True)}


def ops_of(*kinds: str) -> list[str]:
    """Return the names of the ops of these kinds."""
    return [name for name, op in specs().items() if op.kind in kinds]


def reference_of(op: Op) -> Callable[..., Array] | None:
    """Return an independent function that computes the op: from `REFERENCES`, or named by the spec."""
    if op.name in REFERENCES:
        return REFERENCES[op.name]
    return testing.resolve_reference(op.reference) if op.reference else None


@functools.cache
def numpy_of(dtype: str) -> np.dtype[Any]:
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def rounded(values: Array, dtype: str) -> Array:
    """Round values to `dtype`. NumPy has no bfloat16, so bfloat16 values are returned as float32."""
    values = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype)
        narrow = values.astype(np.float32)
        bits = narrow.view(np.uint32)
        up = ((bits >> 16) & 1) + np.uint32(0x7FFF)
        rounded_values = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isfinite(narrow), rounded_values, narrow)


def has(device: Device, dtype: str) -> bool:
    """Return True if the device supports `dtype`."""
    return dtype != "float64" or device.driver.capabilities.fp64


_is_without_float64 = False


@contextlib.contextmanager
def without_float64() -> Iterator[None]:
    """Inside, `tensor` makes float32 of float64 on every device."""
    global _is_without_float64
    _is_without_float64 = True
    try:
        yield
    finally:
        _is_without_float64 = False


def tensor(values: Array, dtype: str, device: Device, grad: bool = False) -> Any:
    """Return a tensor; on a device without float64, and inside `without_float64`, one of float32 in its place."""
    if dtype == "float64" and (_is_without_float64 or not has(device, dtype)):
        dtype = "float32"
    return wg.tensor(values, dtype=getattr(wg, dtype), device=device, requires_grad=grad)


# Layouts: a NumPy array and a tensor with the same values, shape and strides.


def with_layout(make: Callable[[tuple[int, ...]], Array], shape: tuple[int, ...], layout: str, as_tensor: Any) -> Any:
    """Return (array, tensor) of `shape` with the memory layout `layout`."""
    if layout == "contiguous":
        base = make(shape)
        return base, as_tensor(base)
    if layout == "transposed":
        base = make(shape[::-1])
        return base.T, as_tensor(base).T
    if layout == "sliced":  # from an offset, with gaps between rows
        base = make(tuple(n + 3 for n in shape))
        interior = (slice(1, -2),) * len(shape)
        return base[interior], as_tensor(base)[interior]
    if layout == "stepped":
        base = make((*shape[:-1], shape[-1] * 2 + 1))
        return base[..., 1::2], as_tensor(base)[..., 1::2]
    if layout == "expanded":
        base = make((1, *shape[1:]))
        return np.broadcast_to(base, shape), as_tensor(base).expand(shape)
    if layout == "permuted":  # three dimensions permuted so that no two can be merged
        base = make((shape[1], shape[2] + 2, shape[0]))
        view = as_tensor(base).permute(2, 0, 1)
        return base.transpose(2, 0, 1)[:, :, 1:-1], view[:, :, 1:-1]
    if layout == "flipped":
        base = make(shape)
        dims = tuple(range(len(shape)))
        return np.flip(base), dispatch.call(registry["flip_view"], (as_tensor(base),), (dims,))
    raise ValueError(layout)


# Cases


@dataclass
class Case:
    """A call of an op, with the expected results.

    Attributes:
        label: A description.
        operands: The arguments of the call.
        values: The values of the operands, for messages.
        expected: The expected result; a tuple for several results.
        dtype: The expected dtype; a tuple for several results.
        statics: The static arguments.
        tolerance: (relative, absolute); None: that of the dtype.
        view: Whether the result must share its operand's memory.
    """

    label: str
    operands: list[Any]
    values: list[Any]
    expected: Any
    dtype: str | tuple[str, ...]
    statics: tuple[Any, ...] | None = None
    tolerance: tuple[float, float] | None = None
    view: bool = False


@dataclass
class GradientCase:
    """A call whose derivatives are compared with finite differences.

    Attributes:
        label: A description.
        func: The function.
        inputs: Its inputs; some require grad.
        of: The names of the inputs that require grad.
        atol: The absolute error of finite differences of this function.
    """

    label: str
    func: Call
    inputs: list[Any]
    of: tuple[str, ...]
    atol: float = 2e-6


_TOLERANCE = {
    "float16": (1.1e-3, 1e-6),
    "bfloat16": (8.5e-3, 1e-6),
    "float32": (5e-6, 1.5e-6),
    "float64": (2e-13, 1e-14),
}


def compare(
    actual: Array, expected: Array, dtype: str, where: str, tolerance: tuple[float, float] | None = None
) -> None:
    """Raise AssertionError that names a wrong element unless `actual` equals `expected` within the tolerance."""
    assert actual.shape == expected.shape, f"{where}: shape {actual.shape}, expected {expected.shape}"
    kind = numpy_of(dtype).kind
    with np.errstate(all="ignore"):
        if kind == "f":
            reference = rounded(expected, dtype).astype(np.float64)
            values = actual.astype(np.float64)
            rtol, atol = tolerance or _TOLERANCE[dtype]
            is_equal = (values == reference) | (np.isnan(values) & np.isnan(reference))
            is_close = is_equal | (
                np.isfinite(reference) & (np.abs(values - reference) <= atol + rtol * np.abs(reference))
            )
        else:
            reference, values = expected.astype(np.dtype(dtype)), actual
            is_close = values == reference
    if not is_close.all():
        index = tuple(int(i) for i in np.argwhere(~is_close)[0])
        raise AssertionError(
            f"{where}: {int((~is_close).sum())} of {is_close.size} elements are wrong; at {index} {values[index]!r}, "
            f"expected {reference[index]!r}"
        )


def host(result: Any) -> Array:
    """Return a tensor's values as an array; bfloat16 as float32."""
    return (result.float() if result.dtype is wg.bfloat16 else result).detach().cpu().numpy()


def caller(op: Op) -> Call:
    """Return a function that calls the op of the registry."""
    return _caller(registry[op.name])


def _caller(record: OpRecord) -> Call:
    def run(*operands: Any, statics: tuple[Any, ...] | None = None) -> Any:
        return dispatch.call(record, operands, (None,) * len(record.statics) if statics is None else statics)

    return run


@functools.cache
def saving_variant(name: str) -> OpRecord:
    """Return the variant of the op that runs if a gradient is needed: it also returns what gradients need."""
    record = registry[name]
    return replace(record, bare="", outputs=tuple(replace(o, saved=False) for o in record.outputs))


def check_cases(op: Op, cases: Sequence[Case], device: Device, device_label: str, call: Call | None = None) -> None:
    """Build the kernels of all cases in batches, run them, and compare dtypes and values."""
    if call is None and any(o.saved for o in registry[op.name].outputs):
        _check_cases(op, cases, device, f"{device_label}, with saved results", _caller(saving_variant(op.name)))
        output_count = sum(not o.saved for o in registry[op.name].outputs)
        cases = [replace(c, expected=c.expected[:output_count], dtype=c.dtype[:output_count]) for c in cases]
    _check_cases(op, cases, device, device_label, call or caller(op))


def build_cases(tables: Sequence[tuple[Op, Sequence[Case]]], device: Device) -> None:
    """Build the kernels that `check_cases` needs for several ops: in fewer programs than op by op."""
    with collecting(device) as steps:
        for op, cases in tables:
            calls = [caller(op)]
            if any(o.saved for o in registry[op.name].outputs):
                calls.append(_caller(saving_variant(op.name)))
            for call, case in itertools.product(calls, cases):
                _run_case(call, case)
    build(device, steps)


def _run_case(call: Call, case: Case) -> Any:
    return call(*case.operands) if case.statics is None else call(*case.operands, statics=case.statics)


def _check_cases(op: Op, cases: Sequence[Case], device: Device, device_label: str, call: Call) -> None:
    with collecting(device) as steps:
        for case in cases:
            _run_case(call, case)
    build(device, steps)
    for case in cases:
        label = f"{op.name} on {device_label}: {describe_case(case)}"
        result = _run_case(call, case)
        results = result if isinstance(result, tuple) else (result,)
        expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
        dtypes = case.dtype if isinstance(case.dtype, tuple) else (case.dtype,) * len(expected)
        assert len(results) == len(expected), f"{label}: {len(results)} results, expected {len(expected)}"
        for actual, value, dtype in zip(results, expected, dtypes, strict=True):
            assert actual.dtype.name == dtype, f"{label}: gives {actual.dtype.name}, expected {dtype}"
            compare(host(actual), np.asarray(value), dtype, label, case.tolerance)
        if case.view:
            assert results[0].storage is case.operands[0].storage, f"{label}: the result is a copy"


def describe_case(case: Case) -> str:
    """Describe a case for an error message."""
    shapes = [v.shape if isinstance(v, np.ndarray) else v for v in case.values]
    dtypes = [o.dtype.name if hasattr(o, "dtype") else type(o).__name__ for o in case.operands]
    statics_text = f", {case.statics}" if case.statics else ""
    return f"{case.label}: dtypes {dtypes}, shapes {shapes}{statics_text}"


# Gradients


# The gradient is missing, and 0. The public function refuses operands that need it, or passes the mean of the input,
# around which the deviations sum to 0.
WITHOUT_SLOPE = {
    *((name, "input") for name in ("hurwitz_zeta", "incomplete_gamma", "incomplete_gamma_complement")),
    ("variance_around", "mean"),
    ("std_around", "mean"),
}


def differentiable(op: Op) -> list[str]:
    """Return the names of the operands that have a gradient."""
    record = registry[op.name]
    rules = registry.gradients(record)
    if op.grad == "none" or not any(o.differentiable for o in record.outputs):
        return []
    names = [p.name for p in op.operands if p.is_tensor and p.type == "value" and p.name in rules]
    return [name for name in names if (op.name, name) not in WITHOUT_SLOPE]


def exercise(func: Call, inputs: Sequence[Any]) -> None:
    """Run `func` and its first and second derivatives once.

    Inside `collecting`, this collects every kernel that `check_gradients` needs.
    """
    result = func(*inputs)
    outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if t.requires_grad]
    leaves = [x for x in inputs if hasattr(x, "requires_grad") and x.requires_grad]
    seeds = [wg.ones_like(o).requires_grad_(True) for o in outputs]
    with contextlib.suppress(Exception):
        wg.autograd.grad(outputs, leaves, [s.detach() for s in seeds], retain_graph=True, allow_unused=True)
    first = [
        g
        for g in wg.autograd.grad(outputs, leaves, seeds, create_graph=True, allow_unused=True)
        if g is not None and g.requires_grad
    ]
    if first:
        wg.autograd.grad(first, [*leaves, *seeds], [wg.ones_like(g) for g in first], allow_unused=True)


def check_gradients(
    name: str, func: Call, inputs: Sequence[Any], device: Device, *, second: bool = True, atol: float = 2e-6
) -> None:
    """Compare first and second derivatives of `func` with finite differences, in float64."""
    func.__name__ = name
    with collecting(device) as steps, contextlib.suppress(Exception):
        exercise(func, inputs)
    build(device, steps)
    wg.autograd.gradcheck(func, inputs, atol=atol, rtol=1e-5)
    if second:
        wg.autograd.gradgradcheck(func, inputs, atol=atol, rtol=1e-5)


_SINGLE_RTOL = 3e-4  # of derivatives in float32, relative to the largest of an operand


def compare_derivatives(name: str, case: GradientCase, reference: GradientCase, device: Device, second: bool) -> None:
    """Compare first and second derivatives in float32 with those of the same case on another device.

    Differences in float32 have no digits to compare, so a device without float64 needs a reference: `cpu`, whose
    derivatives are compared with differences, in float64. (Here it computes in float32, too: ops that draw random
    numbers draw others in float64.)
    """
    with collecting(device) as steps, contextlib.suppress(Exception):
        exercise(case.func, case.inputs)
    build(device, steps)
    for order, (actual, expected) in enumerate(zip(_derivatives(case), _derivatives(reference), strict=True), 1):
        if order == 2 and not second:
            return
        for operand, (value, exact) in enumerate(zip(actual, expected, strict=True)):
            assert (value is None) == (exact is None), f"{name}, order {order}, operand {operand}"
            if exact is None:
                continue
            values, exact_values = value.detach().cpu().numpy().astype(np.float64), exact.detach().numpy()
            assert values.shape == exact_values.shape
            atol = _SINGLE_RTOL * max(1.0, np.abs(exact_values).max(initial=0))
            np.testing.assert_allclose(values, exact_values, rtol=0, atol=atol, err_msg=f"{name}, order {order}")


def _derivatives(case: GradientCase) -> tuple[list[Any], list[Any]]:
    """Return products of the first and of the second derivatives with random numbers, an array for each leaf."""
    rng = np.random.default_rng(17)

    def weights_of(tensors: Sequence[Any]) -> list[Any]:
        return [wg.tensor(rng.uniform(-1, 1, t.shape), dtype=t.dtype, device=t.device) for t in tensors]

    result = case.func(*case.inputs)
    outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if t.requires_grad]
    leaves = [x for x in case.inputs if hasattr(x, "requires_grad") and x.requires_grad]
    first = wg.autograd.grad(outputs, leaves, weights_of(outputs), create_graph=True, allow_unused=True)
    differentiable_again = [g for g in first if g is not None and g.requires_grad]
    if not differentiable_again:
        return list(first), [None] * len(leaves)
    weights = weights_of(differentiable_again)
    return list(first), list(wg.autograd.grad(differentiable_again, leaves, weights, allow_unused=True))
