"""Plan families in C: programs compute what the Python functions of families compute, and calls use them."""

from __future__ import annotations

import gc
import operator
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.cli.samples import capture_steps
from weftgrad.runtime import context, native, plan_families, planners, plans
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.dtypes import float32
from weftgrad.runtime.kinds import Planned
from weftgrad.runtime.plan_functions import write_function
from weftgrad.runtime.plan_programs import write_program
from weftgrad.runtime.records import registry
from weftgrad.runtime.traced_sizes import Trace, recorded

pytestmark = pytest.mark.skipif(not native.present, reason="the C extension is not in use")

BOUNDARY = (2, 3, 7, 8, 100, 2**31, 2**53 - 1, 2**53 + 1, 2**62, -1, -2, -9, -(2**53) - 1, -(2**62))


@pytest.fixture(autouse=True)
def families_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drop all families; the first call without a matching one makes one."""
    monkeypatch.setattr(plan_families, "CALLS_BEFORE_FAMILY", 1)
    monkeypatch.setattr(plan_families, "CALLS_BEFORE_BRANCH", 1)
    context.forget_plans()
    yield
    context.forget_plans()


def write(function: Callable[..., tuple[Any, ...]], values: list[int]) -> tuple[Callable[..., Any], Any]:
    """Return a family's function in Python and in C for a planner that returns `function(*sizes)` as `view`."""
    trace = Trace()
    sizes = [trace.argument(f"x{i}", value) for i, value in enumerate(values)]
    planned = Planned((), view=function(*sizes))  # type: ignore[arg-type]
    fake_device: Any = SimpleNamespace(driver=None)
    fill = write_function(trace, [], sizes, (planned, None))
    return fill, write_program(trace, [], sizes, planned, None, None, fake_device)


def compare(fill: Callable[..., Any], program: Any, values: list[int]) -> bool:
    """Compare the two functions of a family for some sizes. Return False if C leaves them to Python."""
    result = program([], values)
    if result is None:
        return False
    expected = fill([], values)
    if isinstance(expected, int):  # the number of the failed guard
        assert result == expected, values
    else:
        assert repr(result) == repr(((), None, expected[0].view, None)), values  # 0.0 is not -0.0
    return True


OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.truediv, operator.and_,
    operator.or_, lambda a, b: a << (b & 7), lambda a, b: a >> (b & 7), lambda a, b: -a + b, lambda a, b: 0.165 * a - b,
    lambda a, b: a if a < b else b, lambda a, b: a if a == b else b + 1, lambda a, b: 1.5 if 2.5 * a < b else 2.5,
)  # fmt: skip


def random_planner(rng: random.Random) -> Callable[..., tuple[Any, ...]]:
    """Return a function of sizes that computes and compares at random."""
    steps = [(rng.choice(OPERATORS), rng.random(), rng.random()) for _ in range(5)]

    def compute(*sizes: Any) -> tuple[Any, ...]:
        values = list(sizes)
        for function, a, b in steps:
            values.append(function(values[int(a * len(values))], values[int(b * len(values))]))
        return tuple(values)

    return compute


def test_programs_compute_what_python_computes() -> None:
    """Random expressions and comparisons, on small, negative and very large sizes."""
    rng = random.Random(0)
    compared = 0
    for _ in range(400):
        values = [rng.choice((*BOUNDARY, *range(2, 90))) for _ in range(3)]
        try:
            fill, program = write(random_planner(rng), values)
        except (ArithmeticError, TypeError):  # a division by zero; `&` of a float
            continue
        if program is None:  # sizes beyond 64 bits, `//` of a float
            continue
        for _ in range(10):
            sizes = [max(abs(rng.choice((*BOUNDARY, *range(2, 90)))), 2) for _ in values]
            sizes = [size if value > 0 else -size for size, value in zip(sizes, values, strict=True)]
            try:
                compared += compare(fill, program, sizes)
            except ArithmeticError:  # in Python; C has left the sizes to it
                assert program([], sizes) is None
    assert compared > 1000


def test_sizes_beyond_64_bits_are_left_to_python() -> None:
    fill, program = write(lambda n, m: (n * m, n // m, n if n < 2**70 else m), [12, 5])
    assert program([], [12, 5]) == ((), None, (60, 2, 12), None)
    assert program([], [2**40, 2**40]) is None
    assert fill([], [2**40, 2**40])[0].view == (2**80, 1, 2**40)
    assert write(lambda n: (2**64 * n,), [3])[1] is None


def test_guards_are_the_same() -> None:
    fill, program = write(lambda n, m: (n % m == 0, 3 * n < m, -n + 0.5 * m > -8), [12, 4])
    for n in range(2, 40):
        for m in range(2, 12):
            assert compare(fill, program, [n, m])


def test_recorded_functions_are_called() -> None:
    @recorded
    def largest_divisor(n: int) -> int:
        return max(k for k in range(1, n) if n % k == 0)

    fill, program = write(lambda n: (largest_divisor(2 * n), n.bit_length()), [6])
    for n in (2, 9, 35, 2**20):
        assert compare(fill, program, [n])


def test_invalid_programs_are_errors() -> None:
    code = bytes([0, 0, 0, 0, 255, 255, 0, 0])  # adds a register that does not exist
    for arguments in (
        (b"", code, b"", b"", ()),
        (b"", b"", b"", b"", ()),  # builds nothing
        (b"\2\0\0\0\0\0\7\0", b"", b"", b"", ()),  # size 7 of 1
        (b"", b"", bytes(8), b"", ()),  # object 0 of none
    ):
        *tables, objects = arguments
        with pytest.raises(ValueError, match="refers to what it does not have"):
            native.program(0, 1, (), *tables, objects, (), None)  # type: ignore[arg-type]


# Calls


def count_planning(function: Callable[[], object]) -> int:
    """Return how many Python functions of the modules that plan run in `function`."""
    count = 0

    def profile(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_globals.get("__name__", "").startswith("weftgrad.runtime.plan")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


CALLS: dict[str, Callable[[wg.Tensor], wg.Tensor]] = {
    "pointwise": lambda x: x * 2.5 + x,
    "rows": lambda x: x.softmax(-1),
    "product": lambda x: x @ x.t(),
    "view": lambda x: x.reshape(-1, 2, 4).transpose(0, 1)[:, 1:],
    "in place": lambda x: x.clone().mul_(3),
    "sum": lambda x: x.sum(0),
}


def run_call(name: str, values: Any, grad: bool) -> tuple[int, list[Any]]:
    """Return how many Python calls the planning modules made, and the call's result and gradient."""
    x = wg.tensor(values, device="cpu", requires_grad=grad)
    results: list[wg.Tensor] = []
    python_calls = count_planning(lambda: results.append(CALLS[name](x)))
    if grad:
        results[0].backward(wg.ones_like(results[0]) * 2)
        assert x.grad is not None
        results.append(x.grad)
    return python_calls, [result.detach().numpy() for result in results]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("grad", [False, True])
def test_new_sizes_are_planned_in_c(name: str, grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and gradients equal those of ordinary plans."""
    rng = np.random.default_rng(0)
    python_call_counts = []
    for n in (34, 35, 37, 38, 39, 41, 42):
        values = rng.standard_normal((n, 8)).astype(np.float32)
        python_calls, results_from_family = run_call(name, values, grad)
        python_call_counts.append(python_calls)
        with monkeypatch.context() as patch:
            patch.setattr(context, "lineages", {})
            context.state().plans.clear()
            _, results_from_planner = run_call(name, values, grad)
        for a, b in zip(results_from_family, results_from_planner, strict=True):
            np.testing.assert_array_equal(a, b)
    # Only the signatures of layouts are computed in Python, in up to 9 function calls; filling a plan in Python takes
    # 14 or more.
    assert min(python_call_counts) <= 9


def test_steps_with_scratch_memory_are_planned_in_c() -> None:
    """Several launches in a row, and memory between them."""
    for n in range(20_000, 20_010):  # so many that every processor adds them in parts
        x = (wg.arange(n * 64, device="cpu", dtype=wg.float32) % 7).reshape(n, 64)  # float32 holds the sums
        np.testing.assert_array_equal(x.sum(0).numpy(), x.numpy().astype(np.float64).sum(0))
        np.testing.assert_allclose(x.sum().item(), x.numpy().astype(np.float64).sum(), rtol=1e-6)
    filled_plans = [plan for plan in context.state().plans.values() if plan.planned is None]
    assert any(type(plan.run).__name__ == "Sequence" for plan in filled_plans)


def test_a_sequence_launches_with_scratch_memory() -> None:
    driver = device("cpu").driver
    calls: list[Any] = []

    def run(tensors: list[Any], numbers: list[Any], stream: Any) -> None:
        calls.append((len(tensors), numbers, [tensor.storage.nbytes for tensor in tensors[1:]]))

    x = wg.ones(3, device="cpu")
    in_order = native.sequence(driver, [run, run], (512, 1024))
    in_order([x], [2.5], driver.default_stream)
    assert calls == [(3, [2.5], [512, 1024])] * 2
    calls.clear()
    in_order([x] * 200, (), driver.default_stream)
    assert [count for count, _, _ in calls] == [202, 202]

    def fail(tensors: object, numbers: object, stream: object) -> None:
        raise ValueError("no launch")

    with pytest.raises(ValueError, match="no launch"):
        native.sequence(driver, [run, fail, run], ())([x], [], driver.default_stream)
    assert len(calls) == 3
    with pytest.raises(TypeError, match="a launcher takes"):
        in_order(x, [], driver.default_stream)


def test_families_respect_a_replaced_launcher() -> None:
    """A tool (`capture_steps`) replaces a driver's `launcher`; families made earlier must call the replacement, too."""
    for n in (5, 6, 7):
        wg.ones(n, 3, device="cpu").exp()
    with capture_steps(device("cpu")) as steps:
        wg.empty(8, 3, device="cpu").exp()
    assert [step.instance.name for step in steps] == ["exp"]
    assert wg.full((8, 3), 0.0, device="cpu").exp().sum().item() == 24


def test_families_made_while_steps_are_collected_launch_later() -> None:
    with capture_steps(device("cpu")):
        for n in (5, 6, 7):
            wg.empty(n, 3, device="cpu").exp()
    assert wg.full((9, 3), 0.0, device="cpu").exp().sum().item() == 27


def test_plans_of_families_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MAX_PLANS", 256)
    x = wg.ones(2000, device="cpu")
    for n in range(2, 1500):
        x[:n].neg()
    assert len(context.state().plans) <= 1024  # at every 1024th plan, those beyond `_MAX_PLANS` are dropped


def test_filling_in_plans_leaks_nothing() -> None:
    record, layouts = registry["exp"], [meta(float32, (5, 3), None, device("cpu"))]
    for n in (5, 6):
        wg.ones(n, 3, device="cpu").exp()
    assert native.fill_plan(record, [*layouts], (), 0, None) is not None
    gc.collect()
    before = len(gc.get_objects()), [sys.getrefcount(o) for o in (record, layouts[0], float32, None)]
    for _ in range(1000):
        native.fill_plan(record, [*layouts], (), 0, None)
        native.fill_plan(record, [*layouts], (), 1, None)  # no family
    gc.collect()
    after = len(gc.get_objects()), [sys.getrefcount(o) for o in (record, layouts[0], float32, None)]
    assert after[0] - before[0] < 50
    assert all(b - a < 50 for a, b in zip(before[1], after[1], strict=True))


def test_comparisons_beyond_64_bits_give_up_at_larger_operands() -> None:
    """Nothing but the comparison needs the product."""
    fill, program = write(lambda n, m: (n if n * m < 2**70 else m,), [12, 5])
    assert compare(fill, program, [12, 5])
    assert fill([], [2**40, 2**40]) == 0
    assert program([], [2**40, 2**40]) is None
    fill, program = write(lambda n, m: (n if m - n * m > -(2**70) else m,), [12, 5])
    assert compare(fill, program, [12, 5])
    assert fill([], [2**40, 2**40]) == 0
    assert program([], [2**40, 2**40]) is None
    assert write(lambda n: (n if 1e18 * n < 2**70 else 7,), [12])[1] is None  # a double may exceed 2**70


def test_remainders_of_the_lowest_integers() -> None:
    fill, program = write(lambda n, m: (n % m, n // m), [-9, 4])
    for n in (-(2**63), -(2**63) + 1, -(2**62) - 1):
        for m in (2, 3, 7, 2**62 + 1, 2**63 - 1):
            assert compare(fill, program, [n, m])


def test_deep_expressions_are_left_to_python() -> None:
    def add_often(n: Any) -> tuple[Any, ...]:
        total = n
        for _ in range(sys.getrecursionlimit() // 2):
            total = total * 3 + n
        return (total,)

    trace = Trace()
    n = trace.argument("x0", 2)
    described: Any = SimpleNamespace(driver=None)
    planned = Planned((), view=add_often(n))  # type: ignore[arg-type]
    assert write_program(trace, [], [n], planned, None, None, described) is None


def test_arguments_of_programs_are_checked() -> None:
    (program,) = [family.program for family in families_of_exp()]
    layout: Any = meta(float32, (7, 3), None, device("cpu"))
    assert program is not None
    assert isinstance(program([layout], []), tuple)
    for layouts, sizes in (([], []), ([layout, layout], []), ([layout], [2])):
        with pytest.raises(ValueError, match="takes 1 layouts and 0 sizes"):
            program(layouts, sizes)
    with pytest.raises(TypeError, match="takes layouts, not int"):
        program([3], [])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="too long"):
        native.program(0, 65, (), b"", b"", bytes(32), b"", (None,), (), None)  # type: ignore[arg-type]
    assert native.program(0, 64, (), b"", b"", bytes(32), b"", (None,), (), None) is not None  # type: ignore[arg-type]


def families() -> list[plan_families.Family]:
    """Return all families."""
    pending = [lineage.root for lineage in context.lineages.values()]
    result = []
    while pending:
        branches = list(pending.pop().branches.values())
        pending += branches
        result += branches
    return result


def families_of_exp() -> list[plan_families.Family]:
    """Return the families of a call of `exp` that has been planned for the first time."""
    x = wg.ones(5, 3, device="cpu")
    context.forget_plans()
    x.exp()
    return families()


@pytest.fixture
def replace_plans(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Planned]], None]:
    """`replace_plans(kind, change)`: a kind's planner returns `change(request, planned)`."""

    def replace_planner(kind: str, change: Callable[..., Planned]) -> None:
        original = planners.planner(kind)
        monkeypatch.setitem(planners._planners, kind, lambda request: change(request, original(request)))

    return replace_planner


def test_planners_may_return_lists(replace_plans: Callable[..., None]) -> None:
    def as_lists(request: Any, planned: Planned) -> Planned:
        return replace(planned, outputs=[*planned.outputs], scratch=[*planned.scratch, 4096])  # type: ignore[arg-type]

    replace_plans(registry["sum"].kind, as_lists)
    for n in range(5, 12):
        x = wg.arange(n, device="cpu", dtype=wg.float32)
        assert x.sum().item() == n * (n - 1) / 2
    filled = [p for p in context.state().plans.values() if p.planned is None and p.outputs[0][0].shape == ()]
    assert [type(plan.run).__name__ for plan in filled].count("Sequence") >= 3


def test_sizes_in_lists_are_left_to_python(replace_plans: Callable[..., None]) -> None:
    replace_plans("pointwise", lambda request, planned: replace(planned, outputs=[*planned.outputs]))
    for n in range(5, 12):
        assert wg.full((n, 2), 0.0, device="cpu").exp().sum().item() == 2 * n


def test_planners_of_deep_expressions_have_no_families(replace_plans: Callable[..., None]) -> None:
    def recurse(request: Any, planned: Planned) -> Planned:
        if isinstance(request, plan_families.TracedRequest):
            raise RecursionError("maximum recursion depth exceeded")
        return planned

    replace_plans("pointwise", recurse)
    for n in range(5, 9):
        assert wg.full((n, 2), 0.0, device="cpu").exp().sum().item() == 2 * n


@pytest.mark.parametrize(
    "change",
    [
        lambda step: {"buffers": step.buffers[::-1]},
        lambda step: {"wraps": not step.wraps},
        lambda step: {"scalars": (0,)},
        lambda step: {"integers": (0,)},
        lambda step: {"instance": replace(step.instance, defines=(*step.instance.defines, ("OTHER", 1)))},
    ],
    ids=["buffers", "wraps", "scalars", "integers", "instance"],
)
def test_templates_of_other_kernels_are_not_used(
    change: Callable[..., Any], replace_plans: Callable[..., None]
) -> None:
    """A planner that is no pure function: traced, it plans another launch than the plan's templates have."""

    def plan_otherwise(request: Any, planned: Planned) -> Planned:
        if not isinstance(request, plan_families.TracedRequest):
            return planned
        return replace(planned, steps=tuple([replace(step, **change(step)) for step in planned.steps]))

    x = meta(float32, (5, 3), None, device("cpu"))
    families_of_exp()
    assert native.fill_plan(registry["exp"], [x], (), 0, None) is not None
    replace_plans("pointwise", plan_otherwise)
    assert len(families_of_exp()) == 1
    assert native.fill_plan(registry["exp"], [x], (), 0, None) is None


def test_launchers_in_python_count_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that launches by the driver's method makes plans as large as Python does."""

    def bytes_of_template() -> int:
        (family,) = families_of_exp()
        assert family.program is not None
        assert family.template is not None
        return family.template.nbytes

    with_templates = bytes_of_template()
    assert with_templates == plan_families._PLAN_BYTES + plan_families._STEP_BYTES
    monkeypatch.setattr(native, "host_templates_of", lambda run: [])
    without_templates = bytes_of_template()
    (plan,) = [plan for plan in context.state().plans.values() if plan.planned is not None and plan.planned.steps]
    assert without_templates == plan.nbytes // 2 > 2 * with_templates - plan_families._PLAN_BYTES
