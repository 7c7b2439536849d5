"""What the generated suite runs on: devices, kernels built many at a time, cases and how they are checked.

The functions that check cases take the function to call, so that a mutated op can be put in the place of the right one
(`test_mutations.py`), and the device as an argument, so that another suite can put its own in the place of these.
"""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from op_references import REFERENCES

import weftgrad as wg
from weftgrad import testing
from weftgrad.codegen.generate import own_specs
from weftgrad.codegen.loader import load_file
from weftgrad.codegen.model import Op
from weftgrad.runtime import dispatch
from weftgrad.runtime.context import state
from weftgrad.runtime.device import Device, device
from weftgrad.runtime.records import OpRecord, registry

Array = Any
Call = Callable[..., Any]
BATCH = 32  # kernels a program


# Devices

# The device that the suite is about: WEFTGRAD_TEST_DEVICE=opencl:0, say, runs all of it there and nothing elsewhere.
MAIN = os.environ.get("WEFTGRAD_TEST_DEVICE", "cpu")
# Schedules are chosen by capabilities, so other vendors' schedules run here on the CPU's OpenCL device. What the main
# device runs is optimised as users have it; these are not, since building kernels is most of what the suite does.
_SYNTHETIC = {
    "opencl-cpu-schedules": "lanes=8,registers=16,optimize=0",  # with AVX2
    "opencl-gpu-schedules": "style=gpu,lanes=4,max_group=256,optimize=0",
    "poor-vendor": "style=gpu,lanes=4,fp64=0,fp16=0,max_group=64,local_memory=16384,optimize=0",
}
# How much of the table a device goes through: `full` is everything, `sizes` leaves out what is the same kernel in
# another dtype, `schedules` takes one dtype of each class, `small` is for devices on which every element costs.
SELECTIONS = ("full", "sizes", "schedules", "small")
KINDS = {MAIN: "full"}
if MAIN == "cpu":
    KINDS |= {"opencl-cpu-schedules": "sizes", "opencl-gpu-schedules": "schedules", "poor-vendor": "schedules"}


@functools.cache
def device_of(kind: str) -> Device:
    """The device of that kind, or of that name, opened."""
    if kind in _SYNTHETIC:
        return testing.synthetic_device(900 + list(KINDS).index(kind), _SYNTHETIC[kind])
    place = device(kind)
    if place.type == "cpu":
        place.driver.require()
    return place


# Building in batches


@contextlib.contextmanager
def collecting(place: Device) -> Iterator[list[Any]]:
    """Calls launch nothing and leave their results unwritten; the steps they would have launched are listed.

    Nests: the outer list has the steps of the inner one too.
    """
    driver: Any = place.driver
    steps: list[Any] = []
    outer = vars(driver).get("launcher")
    own = state()
    plans, own.plans = own.plans, {}

    def launcher(planned: Sequence[Any], scratch: Sequence[int]) -> Callable[..., None]:
        steps.extend(planned)
        if outer is not None:
            outer(planned, scratch)
        return lambda tensors, numbers, stream: None

    driver.launcher = launcher
    try:
        yield steps
    finally:
        if outer is None:
            del driver.launcher
        else:
            driver.launcher = outer
        own.plans = plans


def build(place: Device, steps: Sequence[Any]) -> int:
    """Build the kernels of `steps`, many a program; how many there were. While steps are being collected, none."""
    driver: Any = place.driver
    if "launcher" in vars(driver):
        return 0
    if driver.target == "triton":
        return int(driver.build(list(dict.fromkeys(steps))))
    instances = list(dict.fromkeys(step.instance for step in steps))
    if place.type == "cpu":
        return int(driver.build(instances))
    compiler = driver.compiler
    missing = [i for i in instances if i not in compiler._found]
    plain = [i for i in missing if _is_variant(i)] if compiler._capabilities.optimize else []
    built = 0
    if plain:
        plain_compiler = _plain(compiler)
        built += _build(plain_compiler, plain)
        compiler._found.update((i, plain_compiler._found[i]) for i in plain)
    return built + _build(compiler, [i for i in missing if i not in compiler._found])


def _build(compiler: Any, instances: Sequence[Any]) -> int:
    return sum(compiler.build(instances[start : start + BATCH]) for start in range(0, len(instances), BATCH))


def _is_variant(instance: Any) -> bool:
    """Whether a kernel is another form of one that is optimised: of another dtype than float32 or int32, or strided.

    Optimising is most of what building takes. Of strided forms those of every third op are optimised.
    """
    dtypes = {slot.dtype for slot in instance.slots if slot.type == "value"}
    strided = instance.entry.endswith("_rows") and zlib.crc32(instance.name.encode()) % 3
    return bool(strided) or not dtypes <= {"float32", "int32", "bool"}


@functools.cache
def _plain(compiler: Any) -> Any:
    """A compiler for the same OpenCL device that does not optimise."""
    from weftgrad.runtime.backends import opencl  # where pyopencl may be missing, only Triton's kernels run

    able = replace(compiler._capabilities, optimize=False)
    return opencl.Compiler(compiler._context, compiler._handle, able)


def prebuilt(place: Device, function: Callable[[], Any]) -> Any:
    """What `function` returns, with the kernels that it needs built together first."""
    with collecting(place) as steps, contextlib.suppress(Exception):  # what fails will fail again, and be seen
        function()
    build(place, steps)
    return function()


# Ops and values


@functools.cache
def specs() -> dict[str, Op]:
    """Every op of the specs, by name."""
    return {op.name: op for path in own_specs() for op in load_file(path, trust=True)}


def ops_of(*kinds: str) -> list[str]:
    """The names of the ops of these kinds."""
    return [name for name, op in specs().items() if op.kind in kinds]


def reference_of(op: Op) -> Callable[..., Array] | None:
    """An independent function that computes the op: written by hand, or named by the spec."""
    if op.name in REFERENCES:
        return REFERENCES[op.name]
    return testing.resolve_reference(op.reference) if op.reference else None


@functools.cache
def numpy_of(dtype: str) -> np.dtype[Any]:
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def rounded(values: Array, dtype: str) -> Array:
    """`values` as `dtype` holds them; bfloat16 (which NumPy does not have) in float32."""
    values = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return values.astype(dtype)
        narrow = values.astype(np.float32)
        bits = narrow.view(np.uint32)
        up = ((bits >> 16) & 1) + np.uint32(0x7FFF)
        kept = ((bits + up) & np.uint32(0xFFFF0000)).view(np.float32)
        return np.where(np.isfinite(narrow), kept, narrow)


def has(place: Device, dtype: str) -> bool:
    """Whether the device calculates in `dtype`."""
    return dtype != "float64" or place.driver.capabilities.fp64


def tensor(values: Array, dtype: str, place: Device, grad: bool = False) -> Any:
    return wg.tensor(values, dtype=getattr(wg, dtype), device=place, requires_grad=grad)


# Layouts: a NumPy array and a tensor of the same values and the same geometry.


def laid_out(make: Callable[[tuple[int, ...]], Array], shape: tuple[int, ...], layout: str, as_tensor: Any) -> Any:
    """(array, tensor) of `shape` whose memory is arranged as `layout` says."""
    if layout == "contiguous":
        base = make(shape)
        return base, as_tensor(base)
    if layout == "transposed":
        base = make(shape[::-1])
        return base.T, as_tensor(base).T
    if layout == "sliced":  # from an offset, with gaps between rows
        base = make(tuple(n + 3 for n in shape))
        cut = (slice(1, -2),) * len(shape)
        return base[cut], as_tensor(base)[cut]
    if layout == "stepped":
        base = make((*shape[:-1], shape[-1] * 2 + 1))
        return base[..., 1::2], as_tensor(base)[..., 1::2]
    if layout == "expanded":
        base = make((1, *shape[1:]))
        return np.broadcast_to(base, shape), as_tensor(base).expand(shape)
    if layout == "turned":  # three dimensions in no order that can be merged
        base = make((shape[1], shape[2] + 2, shape[0]))
        view = as_tensor(base).permute(2, 0, 1)
        return base.transpose(2, 0, 1)[:, :, 1:-1], view[:, :, 1:-1]
    if layout == "flipped":
        base = make(shape)
        every = tuple(range(len(shape)))
        return np.flip(base), dispatch.call(registry["flip_view"], (as_tensor(base),), (every,))
    raise ValueError(layout)


# Cases


@dataclass
class Case:
    """A call of an op: operands with the values they have, what is expected of it, and in which dtypes.

    expected, dtype: of an op of several results, one each. tolerance: (relative, absolute), the dtype's own without.
    view: whether the result lies in its operand's memory.
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
class Slopes:
    """A call whose derivatives are compared with differences: a function of `inputs`, some of which want gradients.

    of: the names of these. atol: what differences of this function are exact to.
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
    found: Array, expected: Array, dtype: str, where: str, tolerance: tuple[float, float] | None = None
) -> None:
    """Raise AssertionError naming the worst element unless `found` is `expected` within what `dtype` allows."""
    assert found.shape == expected.shape, f"{where}: shape {found.shape}, expected {expected.shape}"
    kind = numpy_of(dtype).kind
    with np.errstate(all="ignore"):
        if kind == "f":
            narrow = rounded(expected, dtype).astype(np.float64)
            wide = found.astype(np.float64)
            rtol, atol = tolerance or _TOLERANCE[dtype]
            same = (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))
            right = same | (np.isfinite(narrow) & (np.abs(wide - narrow) <= atol + rtol * np.abs(narrow)))
        else:
            narrow, wide = expected.astype(np.dtype(dtype)), found
            right = wide == narrow
    if not right.all():
        at = tuple(int(i) for i in np.argwhere(~right)[0])
        raise AssertionError(
            f"{where}: {int((~right).sum())} of {right.size} elements are wrong; at {at} {wide[at]!r}, "
            f"expected {narrow[at]!r}"
        )


def host(result: Any) -> Array:
    """A tensor's values as an array; bfloat16 in float32."""
    return (result.float() if result.dtype is wg.bfloat16 else result).detach().cpu().numpy()


def caller(op: Op) -> Call:
    """The op as the registry has it."""
    return _caller(registry[op.name])


def _caller(record: OpRecord) -> Call:
    def run(*operands: Any, statics: tuple[Any, ...] | None = None) -> Any:
        return dispatch.call(record, operands, (None,) * len(record.statics) if statics is None else statics)

    return run


@functools.cache
def derived(name: str) -> OpRecord:
    """The op as calls run it that something is derived from, with what only gradients read among its results."""
    record = registry[name]
    return replace(record, bare="", outputs=tuple(replace(o, saved=False) for o in record.outputs))


def check_cases(op: Op, cases: Sequence[Case], place: Device, kind: str, call: Call | None = None) -> None:
    """Run all cases, their kernels built together, and compare dtypes and values."""
    if call is None and any(o.saved for o in registry[op.name].outputs):
        _check_cases(op, cases, place, f"{kind}, derived from", _caller(derived(op.name)))
        seen = sum(not o.saved for o in registry[op.name].outputs)
        cases = [replace(c, expected=c.expected[:seen], dtype=c.dtype[:seen]) for c in cases]
    _check_cases(op, cases, place, kind, call or caller(op))


def _check_cases(op: Op, cases: Sequence[Case], place: Device, kind: str, call: Call) -> None:

    def run(case: Case) -> Any:
        return call(*case.operands) if case.statics is None else call(*case.operands, statics=case.statics)

    with collecting(place) as steps:
        for case in cases:
            run(case)
    build(place, steps)
    for case in cases:
        where = f"{op.name} on {kind}: {described(case)}"
        result = run(case)
        found = result if isinstance(result, tuple) else (result,)
        expected = case.expected if isinstance(case.expected, tuple) else (case.expected,)
        wanted = case.dtype if isinstance(case.dtype, tuple) else (case.dtype,) * len(expected)
        assert len(found) == len(expected), f"{where}: {len(found)} results, expected {len(expected)}"
        for one, value, dtype in zip(found, expected, wanted, strict=True):
            assert one.dtype.name == dtype, f"{where}: gives {one.dtype.name}, expected {dtype}"
            compare(host(one), np.asarray(value), dtype, where, case.tolerance)
        if case.view:
            assert found[0].storage is case.operands[0].storage, f"{where}: the result is a copy"


def described(case: Case) -> str:
    """What is called, for a message."""
    shapes = [v.shape if isinstance(v, np.ndarray) else v for v in case.values]
    dtypes = [o.dtype.name if hasattr(o, "dtype") else type(o).__name__ for o in case.operands]
    more = f", {case.statics}" if case.statics else ""
    return f"{case.label}: dtypes {dtypes}, shapes {shapes}{more}"


# Gradients


def differentiable(op: Op) -> list[str]:
    """The operands whose gradients an op has."""
    record = registry[op.name]
    rules = registry.gradients(record)
    if op.grad == "none" or not any(o.differentiable for o in record.outputs):
        return []
    return [p.name for p in op.operands if p.is_tensor and p.type == "value" and p.name in rules]


def exercise(func: Call, inputs: Sequence[Any]) -> None:
    """Everything that checks of first and second derivatives call, once."""
    found = func(*inputs)
    outputs = [t for t in (found if isinstance(found, tuple) else (found,)) if t.requires_grad]
    wanted = [x for x in inputs if hasattr(x, "requires_grad") and x.requires_grad]
    seeds = [wg.ones_like(o).requires_grad_(True) for o in outputs]
    with contextlib.suppress(Exception):
        wg.autograd.grad(outputs, wanted, [s.detach() for s in seeds], retain_graph=True, allow_unused=True)
    first = [
        g
        for g in wg.autograd.grad(outputs, wanted, seeds, create_graph=True, allow_unused=True)
        if g is not None and g.requires_grad
    ]
    if first:
        wg.autograd.grad(first, [*wanted, *seeds], [wg.ones_like(g) for g in first], allow_unused=True)


def check_gradients(
    name: str, func: Call, inputs: Sequence[Any], place: Device, *, second: bool = True, atol: float = 2e-6
) -> None:
    """First and second derivatives of `func`, against differences. Tolerances are of float64."""
    func.__name__ = name
    with collecting(place) as steps, contextlib.suppress(Exception):
        exercise(func, inputs)
    build(place, steps)
    wg.autograd.gradcheck(func, inputs, atol=atol, rtol=1e-5)
    if second:
        wg.autograd.gradgradcheck(func, inputs, atol=atol, rtol=1e-5)
