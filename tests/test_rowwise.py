"""Check rowwise ops against NumPy and SciPy in float64, and their derivatives against finite differences.

The tests run the schedules of a CPU, of a GPU and of a GPU with few resources. The row lengths cross every boundary of
a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.special
from rowwise_running import SPECS, VENDORS, fetch, tensor, use_vendor

from weftgrad.codegen.loader import load_file
from weftgrad.codegen.render import render_all
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.autograd.node import seed_name
from weftgrad.runtime.derive import register_generated
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.records import OpRecord, registry
from weftgrad.runtime.tensor import Tensor

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", autouse=True)
def ops() -> None:
    register_generated(render_all(load_file(SPECS), 2))


@pytest.fixture(params=("cpu", "poor"))
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU device with the capabilities of the named vendor."""
    yield from use_vendor(request.param, monkeypatch)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    yield from use_vendor("cpu", monkeypatch)


@dataclass
class Case:
    """A call and its expected results."""

    name: str
    operands: tuple[Any, ...]
    statics: tuple[Any, ...]
    expected: Any
    tolerance: float = 2e-6
    label: str = ""

    def check(self) -> None:
        results = dispatch.call(registry[self.name], self.operands, self.statics)
        if not isinstance(results, tuple):
            return self._assert_close(results, self.expected)
        for result, expected in zip(results, self.expected, strict=True):
            self._assert_close(result, expected)

    def _assert_close(self, result: Any, reference: Any) -> None:
        result, expected = fetch(result), np.asarray(reference, np.float64)
        assert result.shape == expected.shape, (self, result.shape, expected.shape)
        np.testing.assert_allclose(
            result.astype(np.float64), expected, rtol=self.tolerance, atol=self.tolerance,
            err_msg=f"{self.name} {self.label} {[getattr(o, 'meta', o) for o in self.operands]} {self.statics}",
        )  # fmt: skip


def check_all(cases: Sequence[Case]) -> None:
    """Build the kernels of all cases in a few programs, then run the cases."""
    build([dispatch.plan_for(registry[c.name], c.operands, c.statics) for c in cases])
    for case in cases:
        case.check()


def build(plans: Sequence[Any]) -> None:
    driver: Any = device("cpu").driver
    driver.build([step.instance for plan in plans for step in plan.steps])


# References in float64


def softmax(x: Array, dim: int) -> Array:
    return scipy.special.softmax(x.astype(np.float64), axis=dim)


def log_softmax(x: Array, dim: int) -> Array:
    return scipy.special.log_softmax(x.astype(np.float64), axis=dim)


def layer_norm(x: Array, dims: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    axes = tuple(range(x.ndim - dims, x.ndim))
    x = x.astype(np.float64)
    normalized = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return normalized * (1 if weight is None else weight) + (0 if bias is None else bias)


def rms_norm(x: Array, weight: Any = None, eps: float = 1e-6) -> Array:
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * (1 if weight is None else weight)


def cross_entropy(x: Array, target: Array, smoothing: float = 0.0, ignored: int = -100) -> Array:
    logs = log_softmax(x, -1)
    picked = np.take_along_axis(logs, np.where(target == ignored, 0, target)[..., None], -1)[..., 0]
    return np.where(target == ignored, 0, -(1 - smoothing) * picked - smoothing * logs.mean(-1))


def forward_cases(rng: Any, shape: tuple[int, ...], dtype: str | None = None, tolerance: float = 2e-6) -> list[Case]:
    """Return cases of four ops on one array, along its last dimension."""
    n = shape[-1]
    X = tensor(rng.standard_normal(shape).astype(np.float32) * 2, dtype)
    W, B = (tensor(rng.standard_normal(n).astype(np.float32), dtype) for _ in range(2))
    x, w, b = (fetch(t).astype(np.float64) for t in (X, W, B))
    t = rng.integers(0, n, shape[:-1])
    t.reshape(-1)[::3] = -100
    cases = [
        Case("softmax", (X,), (-1,), softmax(x, -1) if x.size else x),
        Case("log_softmax", (X,), (-1,), log_softmax(x, -1) if x.size else x),
        Case("layer_norm", (X, W, B, 1e-5), ((n,),), layer_norm(x, 1, w, b), 1e-5),
        Case("cross_entropy_row", (X, tensor(t), -100.0, 0.1), (-1,), cross_entropy(x, t, 0.1)),
    ]
    return [replace(c, tolerance=max(c.tolerance, tolerance)) for c in cases]


# Around every width of vector, and around the sizes of a work-group.
LENGTHS = {
    "cpu": (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000, 50257),
    "gpu": (1, 31, 32, 33, 255, 256, 257, 1000),
    "poor": (1, 63, 64, 65, 1000, 50257),
}


@pytest.mark.parametrize("kind", VENDORS)
def test_row_lengths(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    for _ in use_vendor(kind, monkeypatch):
        cases = [c for n in LENGTHS[kind] for c in forward_cases(rng, (3, n))]
        if kind != "cpu":  # one op is enough to get kernels of every work-group size
            cases = [c for c in cases if c.name == "softmax"]
        check_all(cases)


def test_row_counts(vendor: str) -> None:
    rng = np.random.default_rng(2)
    check_all([c for rows in (0, 1, 65, 700) for c in forward_cases(rng, (rows, 64)) if c.name != "log_softmax"])


def test_large_results(cpu: str) -> None:
    """Check results so large that they are written with non-temporal stores."""
    cases = forward_cases(np.random.default_rng(12), (2100, 1024))
    check_all([c for c in cases if c.name in ("softmax", "layer_norm")])


@pytest.mark.parametrize(
    ("kind", "dtype"), [("cpu", "float64"), ("cpu", "float16"), ("cpu", "bfloat16"), ("poor", "float16")]
)
def test_dtypes(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in use_vendor(kind, monkeypatch):
        rng = np.random.default_rng(3)
        tolerance = {"float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
        check_all([c for c in forward_cases(rng, (5, 37), dtype, tolerance) if c.name != "log_softmax"])


def layouts(rng: Any) -> dict[str, Array]:
    """Return arrays of one shape in many layouts."""

    def fresh(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "contiguous": fresh(5, 33, 18),
        "transposed": fresh(18, 33, 5).transpose(2, 1, 0),
        "middle first": fresh(33, 5, 18).transpose(1, 0, 2),
        "stepped": fresh(5, 33, 40)[:, :, 3:39:2],
        "offset": fresh(6, 35, 19)[1:, 1:34, 1:],
        "expanded rows": np.broadcast_to(fresh(1, 33, 18), (5, 33, 18)),
        "expanded in the row": np.broadcast_to(fresh(5, 33, 1), (5, 33, 18)),
    }


def test_dimensions_and_layouts(vendor: str) -> None:
    rng = np.random.default_rng(4)
    cases = []
    for label, x in layouts(rng).items():
        if vendor == "poor" and label not in ("stepped", "transposed"):
            continue
        for dim in (0, 1, -1) if label in ("contiguous", "transposed") else (1, -1):
            cases.append(Case("softmax", (tensor(x),), (dim,), softmax(x, dim), label=label))
        if label in ("contiguous", "offset", "transposed"):
            total = scipy.special.logsumexp(x.astype(float), 1)
            cases.append(Case("logsumexp_row", (tensor(x),), (1, False), total, label=label))
        w, b = rng.standard_normal((2, 33, 18)).astype(np.float32)
        operands = (tensor(x), tensor(w), tensor(b.T.copy().T), 1e-5)
        cases.append(Case("layer_norm", operands, ((33, 18),), layer_norm(x, 2, w, b), 1e-5))
    check_all(cases)


def test_other_shapes(cpu: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    t = rng.integers(0, 4, (6,))
    empty = np.zeros((4, 0), np.float32)
    x3d = rng.standard_normal((2, 40, 100)).astype(np.float32)
    check_all([
        Case("softmax", (tensor(np.float32(3.0)),), (0,), 1.0),
        Case("softmax", (tensor(x3d),), (1,), softmax(x3d, 1)),
        Case("log_softmax", (tensor(x3d),), (1,), log_softmax(x3d, 1)),
        Case("normalize_l2", (tensor(x3d), 1e-12), (1,), x3d / np.linalg.norm(x3d, axis=1, keepdims=True)),
        Case("softmax", (tensor(x[:0]),), (0,), x[:0]),
        Case("softmax", (tensor(empty),), (1,), empty),
        Case("logsumexp_row", (tensor(x[0]),), (0, False), scipy.special.logsumexp(x[0].astype(float))),
        Case("logsumexp_row", (tensor(x),), (1, True), scipy.special.logsumexp(x.astype(float), 1, keepdims=True)),
        Case("logsumexp_row", (tensor(empty),), (1, False), np.full(4, -np.inf)),
        Case("cross_entropy_row", (tensor(x), tensor(t), -100.0, 0.0), (0,), cross_entropy(x.T, t)),
        Case("rms_norm", (tensor(x), tensor(x[0]), 1e-6), ((6,),), rms_norm(x, x[0])),
        Case("rms_norm", (tensor(x), None, 1e-6), ((6,),), rms_norm(x)),
        *(
            Case("layer_norm", (tensor(x), w and tensor(x[0]), b and tensor(x[1]), 1e-5), ((6,),),
                 layer_norm(x, 1, x[0] if w else None, x[1] if b else None), 1e-5)
            for w in (None, True) for b in (None, True)
        ),
    ])  # fmt: skip


def test_in_place_and_strided_out(cpu: str) -> None:
    rng = np.random.default_rng(6)
    for n in (5, 33, 50):
        x = rng.standard_normal((7, n)).astype(np.float32)
        for name, statics, expected in (("softmax", (-1,), softmax(x, -1)), ("log_softmax", (-1,), log_softmax(x, -1))):
            X = tensor(x)
            dispatch.call_into(registry[name], (X,), statics, (X,), in_place=True)
            np.testing.assert_allclose(fetch(X), expected, rtol=2e-6, atol=2e-6)
    X, out = tensor(x), tensor(np.zeros((50, 7), np.float32).T)
    dispatch.call_into(registry["softmax"], (X,), (-1,), (out,), in_place=False)
    flat = Tensor(out.storage, meta(dtypes.float32, (50, 7), None, device("cpu")), out.start)
    np.testing.assert_allclose(fetch(flat).T, softmax(x, -1), rtol=2e-6)


def test_special_values(vendor: str) -> None:
    rows = [[0, 1, 2], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, 1], [0, -np.inf, 1], [1e4, -1e4, 0]]
    x = np.array(rows, np.float32)
    x = np.concatenate([x, np.repeat(x[:, 2:], 30, 1)], 1)
    with np.errstate(all="ignore"):
        shifted = np.exp(x.astype(float) - x.max(1, keepdims=True))
        expected = shifted / shifted.sum(1, keepdims=True)
        logs = (x.astype(float) - x.max(1, keepdims=True)) - np.log(shifted.sum(1, keepdims=True))
        total = scipy.special.logsumexp(x.astype(float), 1)
    cases = []
    for view in (x, x.T.copy().T):
        X = tensor(view)
        cases += [Case("softmax", (X,), (1,), expected), Case("log_softmax", (X,), (1,), logs),
                  Case("logsumexp_row", (X,), (1, False), total)]  # fmt: skip
    check_all(cases)


# Derivatives


def values_by_name(record: OpRecord, operands: Sequence[Any], statics: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((*(o.name for o in record.operands), *record.statics), (*operands, *statics), strict=True))


def variant(record: OpRecord, operands: Sequence[Any]) -> OpRecord:
    present = tuple(x is not None for o, x in zip(record.operands, operands, strict=True) if o.role == "optional")
    return registry[record.variants[present]] if present in record.variants else record


def run(record: OpRecord, values: dict[str, Any]) -> tuple[Array, ...]:
    """Run `record` on arrays and numbers by name, and return its results."""
    operands = [_to_operand(values[o.name]) for o in record.operands]
    results = dispatch.call(record, operands, tuple(values[s] for s in record.statics))
    return tuple(fetch(result) for result in (results if isinstance(results, tuple) else (results,)))


def _to_operand(value: Any) -> Any:
    return tensor(value) if isinstance(value, np.ndarray) else value


def pullback(
    record: OpRecord, values: dict[str, Any], seeds: Sequence[Array], parameter: str
) -> tuple[Array, OpRecord | None, dict[str, Any]]:
    """Return the gradient of a parameter, the op that computed it, and that op's arguments by name."""
    rule = (record.gradients or {})[parameter]
    all_values = {**values, **dict(zip((o.name for o in record.outputs), run(record, values), strict=True))}
    all_values |= {seed_name(record, i): seed for i, seed in enumerate(seeds)}
    if rule.op is None:
        return all_values[rule.operands[0]], None, {}
    target = registry[rule.op]
    arguments = {o.name: all_values[n] for o, n in zip(target.operands, rule.operands, strict=True)}
    arguments.update({s: values[s] for s in target.statics})
    return run(target, arguments)[rule.result or 0], target, arguments


def check_gradients(rng: Any, record: OpRecord, values: dict[str, Any], order: int) -> None:
    """Compare each gradient along a random direction with a central difference of the results."""
    if record.gradients is None:
        return
    seeds = [rng.standard_normal(out.shape) for out in run(record, values)]
    checked = set()
    for operand in record.operands:
        value = values[operand.name]
        if operand.name not in record.gradients or not isinstance(value, np.ndarray):
            continue
        gradient, target, arguments = pullback(record, values, seeds, operand.name)
        assert gradient.shape == value.shape, (record, operand)
        direction, h = rng.standard_normal(value.shape), 1e-5
        above, below = (run(record, {**values, operand.name: value + s * h * direction}) for s in (1, -1))
        difference = sum(np.sum(seed * (a - b)) for seed, a, b in zip(seeds, above, below, strict=True))
        np.testing.assert_allclose(
            np.sum(gradient * direction), difference / (2 * h), rtol=1e-5, atol=1e-6,
            err_msg=f"{record.name} by {operand.name}",
        )  # fmt: skip
        if order > 1 and target is not None and target.name not in checked:
            checked.add(target.name)
            check_gradients(rng, target, arguments, order - 1)


def gradient_calls(rng: Any) -> list[tuple[OpRecord, dict[str, Any]]]:
    x, w, b = rng.standard_normal((5, 11)), rng.standard_normal(11), rng.standard_normal(11)
    t = np.array([0, 10, -100, 3, 5])
    calls: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
        ("softmax", (x,), (-1,)),
        ("log_softmax", (x,), (-1,)),
        ("logsumexp_row", (x,), (-1, False)),
        ("normalize_l2", (x, 1e-12), (-1,)),
        ("cross_entropy_row", (x, t, -100.0, 0.2), (-1,)),
        ("rms_norm", (x, w, 1e-6), ((11,),)),
        ("layer_norm", (x, w, b, 1e-5), ((11,),)),
        ("layer_norm", (x, None, b, 1e-5), ((11,),)),
    ]
    named_calls = []
    for name, operands, statics in calls:
        record = variant(registry[name], operands)
        named_calls.append((record, values_by_name(record, operands, statics)))
    return named_calls


def prebuild(record: OpRecord, values: dict[str, Any], order: int, plans: list[Any]) -> None:
    """Append the plans of every op that checking the gradients of a call will run, without running it."""
    operands = [_to_operand(values[o.name]) for o in record.operands]
    plan = dispatch.plan_for(record, operands, tuple(values[s] for s in record.statics))
    plans.append(plan)
    if order == 0 or record.gradients is None:
        return
    zeros = {o.name: np.zeros(m.shape) for o, m in zip(record.outputs, plan.outputs, strict=True)}
    zeros |= {seed_name(record, i): np.zeros(m.shape) for i, m in enumerate(plan.outputs)}
    for operand in record.operands:
        if operand.name in record.gradients and isinstance(values[operand.name], np.ndarray):
            rule = record.gradients[operand.name]
            if rule.op is not None:
                target = registry[rule.op]
                all_values = {**zeros, **values}
                arguments = {o.name: all_values[n] for o, n in zip(target.operands, rule.operands, strict=True)}
                prebuild(target, arguments | {s: values[s] for s in target.statics}, order - 1, plans)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_derivatives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = ("softmax", "logsumexp_row", "layer_norm", "cross_entropy_row") if kind == "cpu" else ()
    for _ in use_vendor(kind, monkeypatch):
        rng = np.random.default_rng(7)
        calls = gradient_calls(rng)
        if kind == "gpu":
            calls = [c for c in calls if c[0].name == "layer_norm"]
        plans: list[Any] = []
        for record, values in calls:
            prebuild(record, values, 2 if record.name in twice else 1, plans)
        build(plans)
        for record, values in calls:
            check_gradients(rng, record, values, 2 if record.name in twice else 1)


def test_sums_over_rows(vendor: str) -> None:
    """Check the gradients of weight and bias, which are sums over rows, for few and many rows of several lengths."""
    rng = np.random.default_rng(8)
    cases = []
    for rows, shape in ((0, (3,)), (1, (1,)), (3, (17,)), (700, (100,)), (65, (6, 5)), (2, (40000,))):
        n = int(np.prod(shape))
        x, g = rng.standard_normal((2, rows, *shape)).astype(np.float32)
        hat = layer_norm(x, len(shape)) if rows else x
        for view in (lambda a: a, lambda a: np.repeat(a, 2, 0)[::2]):
            X, G = tensor(view(x)), tensor(view(g))
            W = tensor(np.ones(shape, np.float32))
            slope = hat * 0
            if rows:
                flat, normalized = (a.reshape(rows, n).astype(float) for a in (g, hat))
                slope = flat - flat.mean(1, keepdims=True) - normalized * (flat * normalized).mean(1, keepdims=True)
                slope = (slope / np.sqrt(x.reshape(rows, n).var(1, keepdims=True) + 1e-5)).reshape(x.shape)
            expected = (slope, (g * hat).sum(0, dtype=float), g.sum(0, dtype=float))
            cases.append(Case("layer_norm_grad", (G, X, W, 1e-5), (shape,), expected, 1e-4, f"n {n}"))
    check_all(cases)


def test_gradients_of_large_inputs_are_finite(cpu: str) -> None:
    rng = np.random.default_rng(9)
    x = rng.choice([-1e4, 0.0, 1e4, 3.0], (6, 20)).astype(np.float32)
    t = rng.integers(0, 20, 6)
    for name, operands, statics in (
        ("softmax", (x,), (-1,)),
        ("log_softmax", (x,), (-1,)),
        ("logsumexp_row", (x,), (-1, False)),
        ("cross_entropy_row", (x, t, -100.0, 0.1), (-1,)),
        ("layer_norm", (x * 0 + 1e4, None, None, 1e-5), ((20,),)),
        ("normalize_l2", (x * 0, 1e-12), (-1,)),
    ):
        record = variant(registry[name], operands)
        values = values_by_name(record, operands, statics)
        seed = np.ones(run(record, values)[0].shape, np.float32)
        gradient, _, _ = pullback(record, values, [seed], "input")
        assert np.isfinite(gradient).all(), name


def test_gradients_of_row_results_in_every_layout(cpu: str) -> None:
    """Pass one upstream gradient per row, expanded, with and without the reduced dimension."""
    rng = np.random.default_rng(10)
    x = rng.standard_normal((4, 7, 40)).astype(np.float32)
    total = scipy.special.logsumexp(x.astype(float), 1)
    g = np.broadcast_to(np.float32(2.0), (4, 40))
    expected = 2 * np.exp(x - total[:, None])
    record = registry["logsumexp_row_grad_input"]
    for out, grad, keep in ((total, g, False), (total[:, None], g[:, None], True)):
        Case(record.name, (tensor(grad), tensor(x), tensor(out.astype(np.float32))), (1, keep), expected).check()
