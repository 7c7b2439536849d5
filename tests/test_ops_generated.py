"""Every op of the specs: values against an independent reference, derivatives against differences.

The suite iterates over the registry, so that every new op is tested. Expected values never come from the op's own
expression (see `op_references.py`). Every test builds the kernels it needs together (`op_running.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any

import numpy as np
import op_cases as cases
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import MAIN, SELECTION_BY_DEVICE, UNUSUAL, device_of, ops_of, specs
from op_references import LETTERS
from op_references_kinds import philox
from op_running import WITHOUT_SLOPE

import weftgrad as wg
from weftgrad._generated import ops as generated
from weftgrad.runtime import dispatch
from weftgrad.runtime.records import registry

# The ops with a generated function. The registry also has derivatives, and ops that other tests load.
PUBLIC = [record.name for record in registry if callable(vars(generated).get(record.name))]


# Completeness


def test_the_table_has_every_op() -> None:
    device = device_of(MAIN)
    with_cases = {name for name in cases.names() if cases.cases(name, device, "small")}
    assert sorted(set(PUBLIC) - with_cases) == [], "these ops have no cases: see op_cases.py"
    assert sorted(with_cases - set(PUBLIC)) == [], "these cases are of ops that are not registered"


def test_every_differentiable_operand_has_a_slope() -> None:
    device = device_of(MAIN)
    for name in PUBLIC:
        record = registry[name]
        rules = set(registry.gradients(record)) if any(o.differentiable for o in record.outputs) else set()
        rules -= {operand for op, operand in WITHOUT_SLOPE if op == name}
        checked = {operand for case in cases.gradient_cases(name, device, "small") for operand in case.of}
        assert checked == rules, f"{name} has gradients of {sorted(rules)}; checked are those of {sorted(checked)}"


def test_every_op_has_an_independent_reference() -> None:
    assert [name for name in PUBLIC if cases.reference_of(specs()[name]) is None] == []


@pytest.mark.skipif(MAIN == "interpreter", reason="takes 30 s for a polynomial; cpu has the same exceptions")
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_special_values_are_unusual(name: str) -> None:
    """An exception that is not needed any more is to be removed."""
    op, device = specs()[name], device_of(MAIN)
    table = cases.special_cases(op, device)
    with pytest.raises(AssertionError, match="elements are wrong"):
        cases.check_cases(op, table, device, MAIN)


# Values


# Formulas differ by op, schedules by kind of op: every op runs on the main device. On each other device, whose kernels
# are the same texts in other sizes, every n-th op of a kind does. PoCL takes 0.2 s to build a kernel and clang 0.05 s,
# so .ci/run, which is thorough, covers three times as many ops there as other runs.
OTHER_DEVICES = {
    "opencl-cpu-schedules": {"pointwise": 6, "other": 3},
    "opencl-gpu-schedules": {"pointwise": 2, "other": 1},
    "poor-vendor": {"pointwise": 6, "other": 3},
}
POSITION = {name: i for kind in {op.kind for op in specs().values()} for i, name in enumerate(ops_of(kind))}


def runs_on(name: str, device_label: str) -> bool:
    """Return whether an op's values are checked on a device in this run."""
    if device_label not in OTHER_DEVICES:
        return True
    step = OTHER_DEVICES[device_label]["pointwise" if specs()[name].kind == "pointwise" else "other"]
    return POSITION[name] % (step if cases.THOROUGH else 3 * step) == 0


# In the interpreter, sorting and derivatives by differences take long: they get small cases there.
SLOW = MAIN == "interpreter"

VALUE_TESTS = [(name, label) for name in PUBLIC for label in SELECTION_BY_DEVICE if runs_on(name, label)]


# The quick suite has the whole table of every third op of a kind, and float32, or another first dtype, of the rest.
QUICK = bool(os.environ.get("WEFTGRAD_TEST_QUICK"))

BUILT_TOGETHER = 12  # ops whose kernels are built together: most of a small build is starting compilers
built_ahead: set[tuple[str, str]] = set()


def table_of(name: str, device_label: str) -> list[cases.Case]:
    selection = "small" if SLOW and specs()[name].kind == "sort" else SELECTION_BY_DEVICE[device_label]
    if QUICK and selection == "full" and POSITION[name] % 3:
        selection = "sizes"
    return cases.cases(name, device_of(device_label), selection)


@pytest.fixture
def kernels(request: pytest.FixtureRequest, name: str, device_label: str) -> None:
    """Build the kernels of `test_values` for an op and for the ops whose tests follow it in this run."""
    if (name, device_label) in built_ahead:
        return
    tests = [item for item in request.session.items if getattr(item, "function", None) is request.function]
    selected = [
        (test.callspec.params["name"], device_label)
        for test in tests
        if test.callspec.params["device_label"] == device_label
    ]
    begin = selected.index((name, device_label))
    group = [pair for pair in selected[begin : begin + BUILT_TOGETHER] if pair not in built_ahead]
    built_ahead.update(group)
    with contextlib.suppress(Exception):  # the op's own test raises it again
        cases.build_cases([(specs()[op], table_of(op, device_label)) for op, _ in group], device_of(device_label))


@pytest.mark.parametrize(("name", "device_label"), VALUE_TESTS)
@pytest.mark.usefixtures("kernels")
def test_values(name: str, device_label: str) -> None:
    """Layouts, sizes, dtypes and special values; on the main device also the in-place form and `out=`."""
    op, device = specs()[name], device_of(device_label)
    table = table_of(name, device_label)
    cases.check_cases(op, table, device, device_label)
    if device_label == MAIN and op.inplace:
        check_out_and_in_place(name, next(case for case in table if case.label == "65 elements"))


def test_mixed_dtypes_promote() -> None:
    """Every pair of dtypes, and every kind of scalar, by the recorded tables of PyTorch."""
    op, device = specs()["mul"], device_of(MAIN)
    rng = np.random.default_rng(0)
    names = list(LETTERS.values())
    pairs = [p for p in itertools.product(names, names) if p[0] != p[1]]
    sampled = [p for i, p in enumerate(pairs) if i % 6 == 0]  # values of some; the dtypes of all
    table = []
    for a, b in sampled:
        table.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (9,), "contiguous")], rng, device, "mixed"))
    for a, b in (("float32", "float64"), ("float16", "float32"), ("int8", "int64"), ("int32", "float64")):
        table.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (), "contiguous")], rng, device, "mixed, 0-d"))
    for a, b in (
        ("int32", "float32"),
        ("float16", "float32"),
        ("uint8", "int64"),
        ("bool", "int64"),
        ("bfloat16", "int64"),
    ):
        table.append(cases.make_case(op, [(a, (9,), "contiguous"), (b, (), "number")], rng, device, "with a number"))
    cases.check_cases(op, table, device, MAIN)
    for a, b in pairs:
        for rank in (0, 1):
            operands = (cases.tensor(np.zeros(2), a, device), cases.tensor(np.zeros((2,) * rank), b, device))
            planned = dispatch.plan_for(registry["mul"], operands)
            assert planned.outputs[0].dtype.name == cases.common_dtype([(a, 1), (b, rank)]), (a, b, rank)


def check_out_and_in_place(name: str, case: cases.Case) -> None:
    """Check the op with `out=`, and its in-place form if the first operand has the result's dtype."""
    function, written = vars(generated)[name], vars(generated)[f"{name}_"]
    result = wg.empty(65, dtype=getattr(wg, case.dtype), device=case.operands[0].device)
    assert function(*case.operands, out=result) is result
    cases.compare(cases.host(result), case.expected, case.dtype, f"{name}(out=)")
    if case.dtype == case.operands[0].dtype.name:
        target = wg.tensor(case.operands[0])
        version = target._version
        assert written(target, *case.operands[1:]) is target
        assert target._version == version + 1
        cases.compare(cases.host(target), case.expected, case.dtype, f"{name}_")


# What the table leaves out


def test_the_reference_draws_the_vectors_of_random123() -> None:
    pi = philox(np.array([0x85A308D3243F6A88], np.uint64), 0x0370734413198A2E, 0x299F31D0A4093822)
    zeros = philox(np.array([0], np.uint64), 0, 0)
    assert [int(w[0]) for w in zeros] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(w[0]) for w in pi] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_skipped_rows_pass_no_gradient() -> None:
    """As if they were constant: the gradient is that of the other rows."""
    device, rng = device_of(MAIN), np.random.default_rng(0)
    table, index, seed = rng.standard_normal((9, 5)), rng.integers(0, 9, 30), rng.standard_normal((30, 5))
    x = cases.tensor(table, "float32", device, True)
    out = dispatch.call(registry["embedding_rows"], (x, cases.tensor(index, "int64", device)), (0, 1, 2))
    (grad_table,) = wg.autograd.grad(out, x, cases.tensor(seed, "float32", device))
    expected = np.zeros((9, 5))
    np.add.at(expected, index, seed)
    assert expected[2].any()
    expected[2] = 0
    cases.compare(cases.host(grad_table), expected, "float32", "embedding_rows", (1e-6, 1e-6))


# Derivatives


@pytest.mark.parametrize("name", [name for name in PUBLIC if cases.differentiable(specs()[name])])
def test_slopes(name: str) -> None:
    cases.check_derivatives(name, device_of(MAIN), "small" if SLOW else "full")


SLOPE_DEVICES = [label for label in SELECTION_BY_DEVICE if label in ("opencl-gpu-schedules", "poor-vendor")]


@pytest.mark.parametrize("device_label", SLOPE_DEVICES)
@pytest.mark.parametrize("name", ["sigmoid", "gelu_tanh", "pow", "atan2", "where", "lerp", "put_at", "dropout_draw"])
def test_slopes_on_other_devices(name: str, device_label: str) -> None:
    cases.check_derivatives(name, device_of(device_label))


# Any shapes

sizes = st.lists(st.sampled_from([1, 2, 3, 16, 17]), min_size=0, max_size=3)


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(
    shape=sizes,
    dropped=st.lists(st.booleans(), min_size=3, max_size=3),
    random=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_any_shapes_broadcast(shape: list[int], dropped: list[bool], random: Any, data: Any) -> None:
    """a - b of any two shapes that broadcast, of tensors whose dimensions lie in any order."""
    other = [1 if drop else n for n, drop in zip(shape, dropped, strict=False)]
    other = other[data.draw(st.integers(0, len(other))) if other else 0 :] if all(n == 1 for n in other[:1]) else other
    rng = np.random.default_rng(0)
    arrays, tensors = [], []
    for operand_shape in (shape, other):
        dims = list(range(len(operand_shape)))
        random.shuffle(dims)
        base = rng.integers(-9, 9, [operand_shape[d] for d in dims]).astype(np.float32)
        back = tuple(int(i) for i in np.argsort(dims))
        arrays.append(base.transpose(back))
        tensors.append(wg.tensor(base, device=device_of(MAIN)).permute(back))
    difference = tensors[0] - tensors[1]
    np.testing.assert_array_equal(cases.host(difference), arrays[0] - arrays[1])
    np.testing.assert_array_equal(cases.host(difference.sum()), (arrays[0] - arrays[1]).sum())
