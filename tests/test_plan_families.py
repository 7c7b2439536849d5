"""Plan families: a plan that is filled in equals the one that the op's planner makes for the same sizes."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad._generated.records import NAMES
from weftgrad.cli.described_devices import find_device
from weftgrad.cli.kernel_text import sample_call
from weftgrad.cli.samples import capture_steps
from weftgrad.runtime import context, dtypes, native, plan_families, plans
from weftgrad.runtime.autograd.node import Application, Recipe
from weftgrad.runtime.backends.protocol import Step
from weftgrad.runtime.device import Device, Meta, contiguous_strides, meta
from weftgrad.runtime.errors import ShapeError, WeftgradError
from weftgrad.runtime.kinds import Planned
from weftgrad.runtime.records import OpRecord, Rule, registry
from weftgrad.runtime.traced_sizes import Size, Trace, recorded, text_of

DEVICES = ("cpu", "opencl-gpu", "sm_90")
SIZES = (2, 3, 5, 8, 16, 17, 64, 100, 130, 300, 512, 4096)
OPS = (
    "add", "where", "gelu_erf", "copy", "logical_not", "sum", "mean", "amax", "argmax", "softmax", "layer_norm",
    "softmax_grad_input", "cross_entropy_row", "mm", "mm_grad_input", "bmm", "linear_bias", "linear_bias_grad_weight",
    "addmm_relu", "cumsum", "cummax", "gather", "scatter_add", "dropout_draw", "uniform_fill", "sort_along",
)  # fmt: skip
"""Ops of all kinds whose operands may have the same shape, or any shapes that the spec names."""


def _attend(device: Device, n: int) -> wg.Tensor:
    q, k, v = (leaf(device, 2, 3, n, 16) for _ in range(3))
    return wg.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=n % 2 == 0)


def _convolve(device: Device, n: int) -> wg.Tensor:
    return wg.nn.functional.conv2d(leaf(device, 2, 3, n + 4, 9), leaf(device, 5, 3, 3, 3), padding=1)


def _index(device: Device, n: int) -> wg.Tensor:
    x = leaf(device, n, 6)
    return x[1:, ::2].t() + x[: n - 1, 3:].t() + x[n // 2, :3, None] + x.view(2, n, 3)[1, 1:].transpose(0, 1)


def _write(device: Device, n: int) -> wg.Tensor:
    x = leaf(device, n, 6) * 2
    x[:, 1] = 3
    x.mul_(0.5).add_(wg.ones(6, device=device))
    return x.t().contiguous()


API_CALLS: dict[str, Callable[[Device, int], wg.Tensor]] = {
    "attention": _attend,
    "convolution": _convolve,
    "indexing": _index,
    "in place": _write,
    "broadcasting": lambda d, n: leaf(d, 2, n, 3) * leaf(d, n, 1) - leaf(d, 3) / 2.5,
    "permuted": lambda d, n: leaf(d, 4, n, 3).permute(2, 0, 1) + leaf(d, 3, 4, n),
    "dtypes": lambda d, n: leaf(d, n, 4) + wg.ones(n, 4, dtype="float64", device=d) * wg.arange(4, device=d),
    "reductions": lambda d, n: leaf(d, 3, n, 5).sum((0, 2)) + leaf(d, n, 70).mean(1) + leaf(d, 70, n).amax(0),
    "variance": lambda d, n: leaf(d, n, 5).var(0) + leaf(d, 5, n).std(1) + leaf(d, n, 5).norm(),
    "products": lambda d, n: leaf(d, 2, n, 8) @ leaf(d, 8, n) + leaf(d, 2, 1, n) @ leaf(d, n, n),
    "linear": lambda d, n: wg.nn.functional.linear(leaf(d, 4, n, 8), leaf(d, 5, 8), leaf(d, 5)),
    "rows": lambda d, n: wg.softmax(leaf(d, 4, n), -1).t() + wg.nn.functional.layer_norm(leaf(d, n, 4), (4,)),
    "embedding": lambda d, n: wg.nn.functional.embedding(wg.zeros(3, n, dtype="int64", device=d), leaf(d, 9, 7)),
    "joined": lambda d, n: wg.cat([leaf(d, n, 3), leaf(d, 5, 3)]) + wg.stack([leaf(d, n + 5)], 1)[:, :1],
    "padded": lambda d, n: wg.nn.functional.pad(leaf(d, 2, n, 5), (1, 2), mode="reflect").tril(),
    "windows": lambda d, n: wg.nn.functional.max_pool2d(leaf(d, 1, 2, n + 2, 8), 2) * 2,
    "sorted": lambda d, n: leaf(d, 3, n).sort(1)[0] + leaf(d, 3, n).cumsum(1) + leaf(d, 3, n + 1).topk(2)[0][:, :1],
}
"""Calls by users, on tensors with a size n, that end in ops of all kinds and in their gradients."""


def leaf(device: Device, *shape: int) -> wg.Tensor:
    return wg.empty(*shape, device=device, requires_grad=True)


@pytest.fixture(autouse=True)
def no_families(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without families at first, and with a new one for every call that has none."""
    monkeypatch.setattr(plan_families, "CALLS_BEFORE_FAMILY", 1)
    monkeypatch.setattr(plan_families, "CALLS_BEFORE_BRANCH", 1)
    context.forget_plans()
    yield
    context.forget_plans()


def assert_equal(filled: object, planned: object, path: str) -> None:
    """Compare results of planners and recipes, attribute by attribute: kernels, geometry, sizes, layouts, rules."""
    if isinstance(planned, (Recipe, Application)) or type(planned).__name__ in ("Planned", "Step"):
        assert type(filled) is type(planned), path
        for name in type(planned).__slots__:  # type: ignore[attr-defined]
            if name == "dense_layout":  # which backward sets when it first needs it
                continue
            assert_equal(getattr(filled, name), getattr(planned, name), f"{path}.{name}")
    elif isinstance(planned, Rule):  # a module of rules may make the function anew, from the op alone
        assert isinstance(filled, Rule)
        assert replace(filled, function=None) == replace(planned, function=None), path
        assert (filled.function is None) == (planned.function is None), path
    elif isinstance(planned, tuple):
        assert isinstance(filled, tuple)
        assert len(filled) == len(planned), path
        for i, (a, b) in enumerate(zip(filled, planned, strict=True)):
            assert_equal(a, b, f"{path}[{i}]")
    else:
        assert type(filled) is type(planned), f"{path}: {filled!r} is no {type(planned).__name__}"
        assert filled == planned, f"{path}: {filled!r}, not {planned!r}"


def assert_equal_plans(plan: plans.Plan, launch: object, planned: Planned, recipe: Recipe | None, where: str) -> None:
    """Compare a plan and what it launches, (steps, scratch) or None, with what the planner returned."""
    assert_equal(plan.outputs, tuple((layout, layout.nbytes) for layout in planned.outputs), f"{where}, outputs")
    assert_equal(launch, (planned.steps, planned.scratch) if planned.steps else None, f"{where}, launcher")
    assert_equal(plan.view, planned.view, f"{where}, view")
    assert_equal(plan.recipe, recipe, f"{where}, recipe")


def with_strides(layout: Meta, kind: str, rng: random.Random) -> Meta:
    """Return a layout of the same shape: with permuted dimensions, gaps between rows, or one repeated dimension."""
    order = list(range(layout.ndim))
    if kind == "permuted":
        rng.shuffle(order)
    strides = [0] * layout.ndim
    for d, stride in zip(order, contiguous_strides(tuple(layout.shape[d] for d in order)), strict=True):
        strides[d] = stride
    if kind == "gaps":
        strides = [stride * 3 if d < layout.ndim - 1 else stride for d, stride in enumerate(strides)]
    if kind == "expanded" and strides:
        strides[rng.randrange(layout.ndim)] = 0
    return meta(layout.dtype, layout.shape, tuple(strides), layout.device)


class NoPlan(plans.Plan):
    """A plan without a launcher, which devices that are only described cannot make."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.run = self.planned = None
        launcher: Any = lambda steps, scratch: (steps, scratch)  # noqa: E731
        self.device: Any = SimpleNamespace(driver=SimpleNamespace(launcher=launcher))

    def refill(self, planned: object, recipe: object) -> plans.Plan:
        return self


def check_random_calls(record: OpRecord, device: Device, rng: random.Random, lineages: int, calls: int) -> int:
    """Compare the families of an op with its planner on random sizes, and return how often a family was used."""
    dtype = {"bool": "bool", "integer": "int32", "integral": "int32"}.get(record.dtypes, "float32")
    used = 0
    for _ in range(lineages):
        has_one = [rng.random() < 0.2 for _ in range(rng.choice((2, 2, 3)))]
        kind = rng.choice(("contiguous", "contiguous", "permuted", "gaps", "expanded"))
        seed, records_gradients = rng.random(), rng.random() < 0.5
        for _ in range(calls):
            shape = tuple(1 if one else rng.choice(SIZES[: 12 - 3 * len(has_one)]) for one in has_one)
            try:
                operands, statics = sample_call(record, device, dtypes.parse(dtype), shape)
                layouts = plans._layouts(record, operands)
                layouts = [with_strides(m, kind, random.Random(seed)) if isinstance(m, Meta) else m for m in layouts]
                floating = [i for i, m in enumerate(layouts) if isinstance(m, Meta) and m.dtype.kind == "f"]
                grad_mask = sum(1 << i for i in floating) if records_gradients else 0
                _, planned, recipe = plans.plan_parts(record, layouts, statics, grad_mask, None)
            except (WeftgradError, LookupError, StopIteration, TypeError, ValueError):
                continue  # no call of these shapes, or of this layout
            search = plan_families.Search(record, layouts, statics, grad_mask, None)
            match = search.find()
            if match is None:
                search.add_family(NoPlan(), plans.plan_parts)
                match = plan_families.Search(record, layouts, statics, grad_mask, None).find()
                assert match is not None, f"{record.name} on {device}: no family for {shape}, {kind}"
            else:
                used += 1
            where = f"{record.name} on {device}, {dtype}, {layouts}, {statics}"
            assert_equal(match[1], planned, where)
            assert_equal(match[2], recipe, f"{where}, recipe")
            if native.present:
                plan = native.fill_plan(record, layouts, statics, grad_mask, None)
                assert plan is not None, where
                assert_equal_plans(plan, plan.run, planned, recipe, f"in C: {where}")
    return used


@pytest.mark.parametrize("device_name", DEVICES)
def test_families_plan_what_planners_plan(device_name: str) -> None:
    device, _ = find_device(device_name)
    names = [name for name in OPS if name in registry]
    used = {n: check_random_calls(registry[n], device, random.Random(n), lineages=2, calls=8) for n in names}
    assert sum(used.values()) > 100, used


@pytest.mark.thorough
@pytest.mark.parametrize("device_name", DEVICES)
def test_families_of_all_ops_plan_what_planners_plan(device_name: str) -> None:
    device, _ = find_device(device_name)
    for record in [registry[name] for name in sorted(NAMES)]:  # not those that other tests have loaded
        if record.spec and record.name.count("_grad_") < 2:
            context.forget_plans()  # the number of families is bounded
            check_random_calls(record, device, random.Random(record.name), lineages=4, calls=12)


@pytest.mark.parametrize("device_name", DEVICES)
@pytest.mark.parametrize("name", API_CALLS)
def test_families_of_users_calls_plan_what_planners_plan(name: str, device_name: str) -> None:
    device, _ = find_device(device_name)
    rng = random.Random(name)
    used = 0
    with capture_steps(device):
        vars(device.driver)["launcher"] = CapturedLaunch
        for n in (*rng.sample(range(2, 40), 6), *rng.sample(range(40, 700), 4)):
            API_CALLS[name](device, n).sum().backward()
        for key, plan in list(context.state().plans.items()):
            if plan.planned is None:  # filled in, by C or by Python
                check_filled_plan(key, plan)
                used += 1
    assert used > 10


class CapturedLaunch:
    """A launcher that only holds what it would launch."""

    def __init__(self, steps: tuple[Step, ...], scratch: tuple[int, ...]):
        self.steps = steps
        self.scratch = scratch

    def __call__(self, tensors: object, numbers: object, stream: object) -> None:
        """Launch nothing."""


def check_filled_plan(key: tuple[Any, ...], plan: plans.Plan) -> None:
    """Compare a plan, and what the family's function in Python returns, with what the planner returns."""
    record, statics, *operands, last = key
    into = None
    if isinstance(last, tuple):
        into, last = last, operands.pop()
    where = f"{record.name}, {operands}, {statics}, into {into}"
    _, planned, recipe = plans.plan_parts(record, operands, statics, last, into)
    match = plan_families.Search(record, operands, statics, last, into).find()
    assert match is not None, where
    assert_equal(match[1], planned, where)
    assert_equal(match[2], recipe, f"{where}, recipe")
    launch = plan.run if plan.run is None else (plan.run.steps, plan.run.scratch)  # type: ignore[attr-defined]
    assert_equal_plans(plan, launch, planned, recipe, where)


def fill_add(n: int) -> None:
    wg.ones(n, 3) + wg.ones(n, 3)


def test_threads_share_families() -> None:
    for n in (5, 6):
        fill_add(n)
    families = sum(lineage.families for lineage in context.lineages.values())
    thread = threading.Thread(target=fill_add, args=(7,))
    thread.start()
    thread.join()
    assert sum(lineage.families for lineage in context.lineages.values()) == families > 0


def test_few_calls_get_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_families, "CALLS_BEFORE_FAMILY", 3)
    for n, families in ((5, 0), (6, 0), (7, 1), (8, 1)):
        wg.ones(n, 3).exp()
        lineages = [x for key, x in context.lineages.items() if key[0] is registry["exp"]]
        assert [x.families for x in lineages] == [families]


def test_a_new_family_of_sizes_beyond_a_threshold_joins_the_tree() -> None:
    x = [wg.ones(n) for n in (100, 200, 40_000, 50_000, 300, 600_000)]
    families = []
    for tensor in x:
        assert tensor.neg().sum().item() == -tensor.numel()
        families.append(sum(y.families for key, y in context.lineages.items() if key[0] is registry["neg"]))
    assert families == [1, 1, 2, 2, 2, 3]


def test_errors_name_the_sizes_of_the_call() -> None:
    for n in (5, 6, 7):
        fill_add(n)
    with pytest.raises(ShapeError, match=r"add\(input float32\[8, 3\], other float32\[9, 3\]\): .* sizes 8 and 9"):
        wg.ones(8, 3) + wg.ones(9, 3)


def test_a_new_setting_drops_families() -> None:
    for n in (5, 6, 7):
        wg.arange(n).sqrt()
    try:
        wg.set_default_dtype(wg.float64)
        assert wg.arange(7).sqrt().dtype == wg.arange(8).sqrt().dtype == wg.float64
    finally:
        wg.set_default_dtype(wg.float32)
    assert wg.arange(7).sqrt().dtype == wg.float32


def test_families_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_families, "_MAX_LINEAGES", 5)
    monkeypatch.setattr(plan_families, "_MAX_FAMILIES", 3)
    x = wg.ones(2, 3, 4)
    counts = []
    for dim in range(3):
        for keepdim in (False, True):
            x.sum(dim, keepdim=keepdim)
            counts.append(sum(lineage.families for lineage in context.lineages.values()))
            assert len(context.lineages) <= 5
    assert max(counts) == 3


def test_no_family_is_made_for_a_lineage_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    x = wg.ones(2, 3, device="meta")
    context.forget_plans()
    x.exp()
    monkeypatch.setattr(plan_families, "_MAX_FAMILIES", 1)
    monkeypatch.setattr(plan_families, "write_function", lambda *arguments: pytest.fail("a family is made"))
    x.sqrt()
    assert context.lineages == {}


def count_calls(function: Callable[[], object]) -> int:
    """Return how many functions `function` calls, in Python and in C."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", ["add", "gelu_erf", "sum", "softmax", "linear_bias"])
def test_planning_new_sizes_takes_few_calls(name: str) -> None:
    """A family makes a plan with a fraction of the planner's calls of functions, whatever the op.

    The number of calls stands for the time, which would depend on the machine's load.
    """
    record = registry[name]

    def plan(n: int) -> int:
        operands, statics = sample_call(record, wg.device("cpu"), dtypes.float32, (n, 40))
        state, key = context.state(), (name, n)
        return count_calls(lambda: plans.make_plan(state, key, record, operands, statics, 0))

    calls = [plan(n) for n in (50, 51, 53)]
    assert calls[2] < 200
    assert 3 * calls[2] < calls[0]


# Traced sizes


def trace_of(*values: int) -> tuple[Trace, list[Any]]:
    trace = Trace()
    return trace, [trace.argument(f"x{i}", value) for i, value in enumerate(values)]


def test_sizes_record_comparisons_and_arithmetic() -> None:
    trace, (n, m) = trace_of(12, 5)
    total = -(-(n * m) // 8)
    assert isinstance(total, Size)
    assert total.value == 8
    assert trace.guards == []
    assert total > 7
    assert [(symbol, outcome) for symbol, _, _, outcome in trace.guards] == [("<", True)]
    assert total >= 8  # follows from the guard
    assert n * m is m * n
    assert n > 1  # an argument is not 0 or 1
    assert len(trace.guards) == 1


def test_what_sizes_cannot_record_pins_or_raises() -> None:
    trace, (n,) = trace_of(12)
    with pytest.raises(TypeError, match="unhashable"):
        {n: 1}
    assert trace.guards == []
    assert list(range(n))[-1] == 11
    assert [(symbol, a, outcome) for symbol, a, _, outcome in trace.guards] == [("==", n, True)]
    assert (f"{n}", str(n), int(n), float(n)) == ("12", "12", 12, 12.0)
    assert len(trace.guards) == 1


def test_literals_of_numbers() -> None:
    numbers = (3, -3, True, 0.5, -1e-30, float("inf"), -float("inf"))
    assert [eval(text_of(number)) for number in numbers] == list(numbers)


def test_a_recorded_function_is_one_expression() -> None:
    @recorded
    def largest_divisor(n: int) -> int:
        return max(k for k in range(1, n) if n % k == 0)

    trace, (n,) = trace_of(12)
    assert largest_divisor(15) == 5
    divisor = largest_divisor(n)
    assert isinstance(divisor, Size)
    assert divisor.value == 6
    assert trace.guards == []


def test_a_family_computes_what_the_planner_computes_at_bounds() -> None:
    """Sizes around 0, 1 and the signs of strides, which belong to other lineages."""
    x = wg.arange(60).reshape(5, 12)
    for n in range(13):
        for view in (x[:, :n], x[:, :n].flip(1), x[:, :n].t(), x[:1, :n].expand(3, n)):
            np.testing.assert_array_equal((view * 2 + view).numpy(), view.numpy() * 3)
