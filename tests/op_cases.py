"""Inputs of the generated suite, what is expected of them, and how a batch of calls is built and compared.

A case is a call and its expected result. The functions that check cases take the function to call, so that a mutated
op can be put in the place of the right one (`test_mutations.py`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from op_references import INTEGER_REFERENCES, LETTERS, PROMOTE, PROMOTE_SCALAR, REFERENCES, results_of

import weftgrad as wg
from weftgrad import testing
from weftgrad.codegen.generate import own_specs
from weftgrad.codegen.loader import load_file
from weftgrad.codegen.model import Op
from weftgrad.runtime import dispatch
from weftgrad.runtime.backends.opencl_cpu import SMALL, CpuDriver
from weftgrad.runtime.context import state
from weftgrad.runtime.device import Device, device
from weftgrad.runtime.records import registry

Array = Any
BATCH = 32  # kernels a program


# Devices

# Schedules are chosen by capabilities, so other vendors' schedules run here on the CPU's OpenCL device.
KINDS = {
    "cpu": "",
    "opencl-cpu-schedules": "",
    "opencl-gpu-schedules": "style=gpu,lanes=4,max_group=256",
    "poor-vendor": "style=gpu,lanes=4,fp64=0,fp16=0,max_group=64,local_memory=16384",
}


@functools.cache
def device_of(kind: str) -> Device:
    """The device of that kind, opened."""
    if kind == "cpu":
        place = device("cpu")
        place.driver.require()  # type: ignore[attr-defined]
        return place
    return testing.synthetic_device(900 + list(KINDS).index(kind), KINDS[kind])


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
    quick = isinstance(driver, CpuDriver) and driver.quick_compiler is not None
    groups: dict[Any, list[Any]] = {}
    for step in steps:
        compiler = driver.quick_compiler if quick and step.work <= SMALL else driver.compiler
        groups.setdefault(compiler, []).append(step.instance)
    built = 0
    for compiler, instances in groups.items():
        missing = [i for i in dict.fromkeys(instances) if i not in compiler._found]
        for start in range(0, len(missing), BATCH):
            built += compiler.build(missing[start : start + BATCH])
    return built


def prebuilt(place: Device, function: Callable[[], Any]) -> Any:
    """What `function` returns, with the kernels that it needs built together first."""
    with collecting(place) as steps, contextlib.suppress(Exception):  # what fails will fail again, and be seen
        function()
    build(place, steps)
    return function()


# Values


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


def tensor(values: Array, dtype: str, place: Device, grad: bool = False) -> Any:
    return wg.tensor(values, dtype=getattr(wg, dtype), device=place, requires_grad=grad)


# Ranges narrower than the op's domain serve its derivatives only.
_FORWARD_WIDE = {"remainder", "fmod", "floor_divide", "trunc_divide", "true_divide", "reciprocal", "addcdiv", "pow"}
_SMALL_INTEGERS = {"pow": {"input": (-6, 6), "exponent": (-3, 9)}}


def draw(op: Op, parameter: str, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Values of one operand: over the op's range, a quarter of them whole numbers, so that there are ties and kinks."""
    kind = numpy_of(dtype).kind
    low, high = (None, None) if op.name in _FORWARD_WIDE else op.fields.get("sample", {}).get(parameter, (None, None))
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

Operand = tuple[str, tuple[int, ...], str]  # dtype (or "number"), shape, layout


@dataclass
class Case:
    """A call of an op: operands with the values they have, expected values and dtype."""

    label: str
    operands: list[Any]
    values: list[Any]
    expected: Array
    dtype: str


_TOLERANCE = {
    "float16": (1.1e-3, 1e-6),
    "bfloat16": (8.5e-3, 1e-6),
    "float32": (5e-6, 1.5e-6),
    "float64": (2e-13, 1e-14),
}


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
    "negative_slope": 0.25,
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
    numbers = [_number(p.name, common) for p in op.operands if not p.is_tensor]
    expected = reference_values(op, arrays, numbers, common)
    return Case(label, [*operands, *numbers], arrays, expected, LETTERS[result])


def _number(name: str, common: str) -> Any:
    return NUMBERS.get(name, 0.75) if numpy_of(common).kind == "f" else 2


def reference_values(op: Op, arrays: Sequence[Any], numbers: Sequence[Any], common: str) -> Array:
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
        return np.asarray(function(*given, *numbers))


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


Call = Callable[..., Any]


def caller(op: Op) -> Call:
    """The op as the registry has it; `into` are results to write to."""
    record = registry[op.name]

    def run(
        *operands: Any, statics: tuple[Any, ...] = (None,) * len(record.statics), into: Any = None, place: bool = False
    ) -> Any:
        if into is None:
            return dispatch.call(record, operands, statics)
        return dispatch.call_into(record, operands, statics, (into,), in_place=place)

    return run


def check_cases(op: Op, cases: Sequence[Case], place: Device, kind: str, call: Call | None = None) -> None:
    """Run all cases, built together, and compare: fresh results, and the same call written to `out=`."""
    call = call or caller(op)

    def where(case: Case) -> str:
        shapes = [v.shape if isinstance(v, np.ndarray) else v for v in case.values]
        dtypes = [o.dtype.name if hasattr(o, "dtype") else type(o).__name__ for o in case.operands]
        return f"{op.name} on {kind}: {case.label}: dtypes {dtypes}, shapes {shapes}"

    with collecting(place) as steps:
        for case in cases:
            call(*case.operands)
    build(place, steps)
    for case in cases:
        found = call(*case.operands)
        assert found.dtype.name == case.dtype, f"{where(case)}: gives {found.dtype.name}, expected {case.dtype}"
        compare(host(found), case.expected, case.dtype, where(case))


SIZES = (1, 15, 16, 17, 63, 64, 65, 1000, 40000)
MATRIX = (5, 17)


def turn_of(op: Op) -> int:
    """The op's place among all, by which ops take turns."""
    return list(specs()).index(op.name)


def thorough(op: Op) -> bool:
    """Whether an op goes through every layout. Layouts are the templates' business, formulas the ops': some ops do."""
    return turn_of(op) % 8 == 0 or op.name in ("add", "where", "lerp", "exp")


def forms_of(op: Op, kind: str) -> list[tuple[str, list[tuple[tuple[int, ...], str]]]]:
    """(label, [(shape, layout) of each operand]): sizes across the boundaries of schedules, and layout classes."""
    count = sum(p.is_tensor for p in op.operands)

    def every(shape: tuple[int, ...], layout: str) -> list[tuple[tuple[int, ...], str]]:
        return [(shape, layout)] * count

    forms = [(f"{n} elements", every((n,), "contiguous")) for n in SIZES]
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
    for mix in mixes if kind != "opencl-cpu-schedules" else []:
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


def pointwise_cases(op: Op, place: Device, kind: str) -> list[Case]:
    """Layouts and sizes in one dtype, and every other dtype contiguous and strided."""
    rng = np.random.default_rng(len(op.name))
    tensors = [p for p in op.operands if p.is_tensor]
    count = len(tensors)
    dtypes = accepted(op)
    first = next(d for d in ("float32", "int32", "bool") if d in dtypes)
    cases = []
    masks = [i for i, p in enumerate(tensors) if p.type != "value"]
    for label, form in forms_of(op, kind):
        if any(form[i][1] == "number" for i in masks) or (count == 1 and form[0][1] == "number"):
            continue
        cases.append(make_case(op, [(first, s, layout) for s, layout in form], rng, place, label))
    for dtype in _other_dtypes(op, first, dtypes, kind):
        cases.append(make_case(op, [(dtype, (65,), "contiguous")] * count, rng, place, "65 elements"))
    if kind == "cpu" and len(dtypes) > 1 and turn_of(op) % 2:  # strided in one other dtype, another one for every op
        dtype = dtypes[1 + turn_of(op) % (len(dtypes) - 1)]
        cases.append(make_case(op, [(dtype, MATRIX, "stepped")] * count, rng, place, "stepped"))
    return cases


def _other_dtypes(op: Op, first: str, dtypes: list[str], kind: str) -> list[str]:
    """All of them for some ops on cpu; of the others one in each class, another one for every op."""
    others = [d for d in dtypes if d != first]
    turn = turn_of(op)
    if kind == "cpu" and thorough(op):
        return others
    if kind == "opencl-cpu-schedules":  # the kernels of cpu
        return []
    classes = [("float16", "bfloat16"), ("int8", "int16", "int32", "uint8"), ("bool",)]
    classes += [("float64",), ("int64",)] if kind == "cpu" else []
    picked = {each[turn % len(each)] for each in classes}
    return [d for d in others if d in picked]


def special_cases(op: Op, place: Device) -> list[Case]:
    """NaN, infinities, zeros of either sign, large and tiny numbers, in all pairs."""
    tensors = [p for p in op.operands if p.is_tensor]
    cases = []
    for dtype in ("float32", "float64"):
        if dtype not in accepted(op):
            continue
        columns = list(zip(*itertools.product(SPECIAL, repeat=min(len(tensors), 2)), strict=True))
        if len(tensors) > 2:
            columns.append(columns[1][7:] + columns[1][:7])
        arrays = [
            rounded(np.array(c), dtype) if p.type == "value" else np.array(c) > 0
            for p, c in zip(tensors, columns, strict=True)
        ]
        operands = [
            tensor(a, dtype if p.type == "value" else "bool", place) for p, a in zip(tensors, arrays, strict=True)
        ]
        cases.append(_expected(op, operands, arrays, [(dtype, 1)], "special values"))
    return cases


# Gradients


def smooth(op: Op, position: int, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Values in the op's range, away from whole and half numbers and from what other operands have: no kink is near."""
    parameter = op.operands[position]
    low, high = op.fields.get("sample", {}).get(parameter.name, (-4.0, 4.0))
    cell = (high - low) / 32 if high - low < 2 else 0.125
    count = max(1, int((high - low) / cell))
    at = low + cell * (rng.integers(0, count, shape) + 0.5)
    return np.asarray(at + cell * (0.22 * position + rng.uniform(-0.05, 0.05, shape)))


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


# Ops of other kinds, in tables: operands as shapes ("mask", "index" before a shape), None, or numbers by name.

Table = list[tuple[str, tuple[Any, ...], dict[str, Any]]]

ROWS: Table = [
    ("softmax", ((5, 17),), {"dim": -1}),
    ("softmax", ((3, 4, 33),), {"dim": 1}),
    ("softmax", ((2, 1000),), {"dim": 1}),
    ("softmax", ((7,),), {"dim": 0}),
    ("log_softmax", ((5, 65),), {"dim": -1}),
    ("log_softmax", ((6, 5),), {"dim": 0}),
    ("logsumexp_row", ((5, 17),), {"dim": 1, "keepdim": False}),
    ("logsumexp_row", ((4, 3, 5),), {"dim": 0, "keepdim": True}),
    ("layer_norm", ((5, 17), (17,), (17,)), {"normalized_shape": (17,), "eps": 1e-5}),
    ("layer_norm", ((5, 64), None, None), {"normalized_shape": (64,), "eps": 1e-3}),
    ("layer_norm", ((2, 3, 4), (3, 4), None), {"normalized_shape": (3, 4), "eps": 1e-5}),
    ("rms_norm", ((5, 33), (33,)), {"normalized_shape": (33,), "eps": 1e-6}),
    ("rms_norm", ((3, 16), None), {"normalized_shape": (16,), "eps": 1e-6}),
    ("normalize_l2", ((5, 17),), {"dim": 1, "eps": 1e-12}),
    ("normalize_l2", ((5, 4, 3),), {"dim": 1, "eps": 1e-12}),
    ("nll_row", ((5, 9), ("index", (5,))), {"dim": 1, "ignore_index": 3}),
    ("cross_entropy_row", ((6, 9), ("index", (6,))), {"dim": -1, "ignore_index": 3, "label_smoothing": 0.0}),
    ("cross_entropy_row", ((4, 9, 5), ("index", (4, 5))), {"dim": 1, "ignore_index": -100, "label_smoothing": 0.25}),
]  # fmt: skip

CONTRACTIONS: Table = [
    ("matmul_batched", ((5, 17), (17, 9)), {}),
    ("matmul_batched", ((2, 1, 7, 5), (3, 5, 33)), {}),
    ("matmul_batched", ((70, 65), (65, 66)), {}),
    ("mm", ((16, 16), (16, 16)), {}),
    ("mm", ((1, 65), (65, 1)), {}),
    ("mm", ((3, 0), (0, 4)), {}),
    ("bmm", ((3, 4, 5), (3, 5, 6)), {}),
    ("mv", ((33, 17), (17,)), {}),
    ("vm", ((17,), (3, 17, 5)), {}),
    ("bmv", ((2, 33, 17), (17,)), {}),
    ("dot", ((1000,), (1000,)), {}),
    ("outer", ((17,), (33,)), {}),
    ("linear_product", ((4, 65), (33, 65)), {}),
    ("linear_product", ((2, 3, 16), (5, 16)), {}),
]


def table_case(
    op: Op, given: Sequence[Any], named: dict[str, Any], dtype: str, place: Device, grad: bool = False
) -> Any:
    """(operands, statics, arrays) of a row of a table."""
    rng = np.random.default_rng(3)
    tensors = iter(given)
    arrays: list[Any] = []
    operands: list[Any] = []
    for p in op.operands:
        if not p.is_tensor:
            operands.append(named[p.name])
            continue
        what = next(tensors)
        if what is None:
            arrays.append(None)
            operands.append(None)
        elif what[0] == "index":
            array = rng.integers(0, given[0][named["dim"]], what[1])
            arrays.append(array)
            operands.append(tensor(array, "int64", place))
        else:
            array = rounded(rng.standard_normal(what), dtype)
            arrays.append(array)
            operands.append(tensor(array, dtype, place, grad))
    return operands, tuple(named[s.name] for s in op.statics), arrays


def check_table(name: str, rows: Sequence[tuple[Any, Any]], dtype: str, place: Device, kind: str) -> None:
    """Every row of a table for one op, in one dtype, against the reference."""
    op, reference, call = specs()[name], reference_of(specs()[name]), caller(specs()[name])
    assert reference is not None
    calls = [table_case(op, given, named, dtype, place) for given, named in rows]
    found = prebuilt(place, lambda: [call(*operands, statics=statics) for operands, statics, _ in calls])
    for result, (given, named), (_, _, arrays) in zip(found, rows, calls, strict=True):
        wide = [a if a is None or a.dtype.kind in "biu" else a.astype(np.float64) for a in arrays]
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(*wide, **named))
        where = f"{name} on {kind}: {dtype}, operands {list(given)}, {named}"
        assert result.dtype.name == dtype, f"{where}: gives {result.dtype.name}"
        terms = max((a.shape[-1] for a in arrays if a is not None and a.ndim), default=1)
        rtol, atol = _TOLERANCE[dtype]
        compare(host(result), expected, dtype, where, (rtol * 2, atol * 4 + terms**0.5 * _EPSILON[dtype]))


_EPSILON = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 4e-7, "float64": 1e-15}
