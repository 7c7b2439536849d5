"""Compare backward's steps in C with those in Python; count the launches of gradients for some inputs only."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from backward_running import count_launches, either_engine, leaf  # noqa: F401  # a fixture

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime import native
from weftgrad.runtime.autograd import engine
from weftgrad.runtime.device import device
from weftgrad.runtime.modes import Mode

needs_c = pytest.mark.skipif(not native.present, reason="compiled without C")
Tensors = list[Any]
Program = Callable[[Tensors], Any]


def slices(t: Tensors) -> Any:
    x = t[0] * 2
    parts = [x[i] * float(i + 1) for i in range(3)]
    return sum(parts) * x[1:].sum() + x[:, ::2].sum() + x.diagonal().sum() + x.narrow(1, 1, 2).sum() + x.sum()


def reshaped_views(t: Tensors) -> Any:
    x = t[0] * 1.5
    y = x.transpose(0, 1).reshape(3, 4) * x.view(3, 4)
    z = y.unsqueeze(1).expand(3, 2, 4).permute(2, 0, 1).flip(0)
    return (z * z).sum((0, 2)).squeeze() * x.unflatten(0, (1, -1)).squeeze(0).sum(1)[:3]


def several_results(t: Tensors) -> Any:
    values, _ = t[0].max(1)
    a, b = t[0].sin().split(2, 1)
    c, d, *_ = t[1].cos().unbind(0)  # the other results get no gradient
    return values.sum() * (a * b).sum() + (c * d).sum() + t[0].topk(2, 1).values.sum() + t[0].cumsum(1).sum()


def reductions(t: Tensors) -> Any:
    x = t[0] * t[1]
    total = x.sum(0) * x.mean(1, keepdim=True) + x.var(0) + x.amax((0, 1)) + x.logsumexp(1, keepdim=True)
    return total.mean() * x.prod() + x.norm() + x.T.sum(0).mean()


PROGRAMS: dict[str, tuple[Program, list[tuple[int, ...]]]] = {
    "chain": (lambda t: ((t[0] * t[1]).tanh() + t[0]).sigmoid() / t[1], [(5,), (5,)]),
    "broadcasts": (lambda t: (t[0] * t[1] + t[2]) * (t[0] - t[1] * t[3]), [(4, 3), (3,), (4, 1), ()]),
    "broadcast operands": (
        lambda t: wg.lerp(t[0], t[1], t[2].mT * t[3][..., None]), [(2, 3, 4), (3, 1), (2, 4, 1), (2, 1)],
    ),
    "slices": (slices, [(4, 4)]),
    "views": (reshaped_views, [(4, 3)]),
    "several results": (several_results, [(3, 4), (4, 3)]),
    "reductions": (reductions, [(4, 3), (4, 3)]),
    "matrices": (lambda t: (t[0] @ t[1]).softmax(-1) @ t[2] + t[3] @ t[1], [(2, 3, 4), (4, 4), (2, 4, 4), (1, 3, 4)]),
    "one tensor twice": (lambda t: (t[0] * t[0]) @ t[0] + t[0].T, [(3, 3)]),
    "norm": (lambda t: F.layer_norm(t[0], (4,), t[1], t[2]), [(3, 4), (4,), (4,)]),
    "linear": (lambda t: F.gelu(F.linear(t[0], t[1], t[2])), [(5, 3), (4, 3), (4,)]),
    "convolution": (lambda t: F.conv2d(t[0], t[1], t[2]).relu(), [(1, 2, 5, 5), (3, 2, 3, 3), (3,)]),
    "loss": (
        lambda t: F.cross_entropy(t[0], wg.tensor([1, 0, 2], device="cpu")) + F.mse_loss(t[0], t[1]), [(3, 4), (3, 4)],
    ),
    "joined": (lambda t: wg.cat([t[0], t[1] * 2], 0)[1:3] * wg.stack([t[2], t[2]]), [(2, 3), (2, 3), (3,)]),
    "picked": (lambda t: t[0][:, [0, 2]] + t[0].gather(1, wg.tensor([[0, 1], [2, 2]], device="cpu")), [(2, 3)]),
    "written in place": (lambda t: ((t[0] * 2).mul_(t[1]) + t[1]).clamp(0.5, 2.0), [(4,), (4,)]),
    "no gradient": (lambda t: t[0] * t[1].round() + t[1].detach(), [(4,), (4,)]),
    "no elements": (lambda t: t[0][:0].sum() + (t[0][1:] * t[1][:, None]).sum(), [(3, 2), (2,)]),
}  # fmt: skip


def gradients(program: Program, shapes: list[tuple[int, ...]], mode: str) -> tuple[list[np.ndarray[Any, Any]], int]:
    """Return the gradients of a program's operands, and the launches of its backward."""
    operands = [leaf(*shape, seed=i) for i, shape in enumerate(shapes)]

    def work() -> list[Any]:
        for operand in operands:
            operand.grad = None
        out = program(operands)
        before = device("cpu").driver.launches
        if mode == "backward":
            (out * out).sum().backward()
            results = [operand.grad for operand in operands]
        elif mode == "retained":
            loss = (out * out).sum()
            loss.backward(retain_graph=True)
            loss.backward()
            results = [operand.grad for operand in operands]
        else:
            first = wg.autograd.grad((out * out).sum(), operands, create_graph=True)
            total = sum((g * g).sum() for g in first)
            results = [*first, *wg.autograd.grad(total, operands, materialize_grads=True)]
        launches.append(device("cpu").driver.launches - before)
        return results

    launches: list[int] = []
    work()
    wg.cpu.synchronize()
    return [result.detach().numpy().copy() for result in work()], launches[-1]


@needs_c
@pytest.mark.parametrize("mode", ["backward", "retained", "create_graph"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_c_and_python_give_the_same_bits(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected_values, expected_launches = [], -1
    for advance in (None, engine._advance):
        monkeypatch.setattr(engine, "_advance", advance)
        values, launches = gradients(*PROGRAMS[name], mode)
        if advance is None:
            expected_values, expected_launches = values, launches
    assert launches == expected_launches
    for value, expected in zip(values, expected_values, strict=True):
        np.testing.assert_array_equal(value, expected)


@needs_c
def test_layouts_and_dtypes_of_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients have the operand's dtype; leaves that are not contiguous get the same `grad` from both."""

    def work() -> list[tuple[Any, ...]]:
        narrow = leaf(4, 3, dtype=wg.float16)
        wide = leaf(3, seed=1)
        columns = leaf(3, 4, seed=2).detach().T.requires_grad_()
        row = leaf(4, 6, seed=3).detach()[:1, ::2].requires_grad_()
        (narrow * wide * columns + (row.mul(wide) + columns)).sum().backward()
        results = [narrow.grad, wide.grad, columns.grad, row.grad]
        return [(g.dtype, g.shape, g.stride(), g.numpy().tobytes()) for g in results]

    with_c = work()
    assert work() == with_c  # by layouts that the first backward has cached
    monkeypatch.setattr(engine, "_advance", None)
    assert work() == with_c


OPERANDS: dict[str, tuple[Program, list[tuple[int, ...]]]] = {
    "mul": PROGRAMS["chain"],
    "matmul": (lambda t: t[0] @ t[1], [(5, 4), (4, 3)]),
    "linear": PROGRAMS["linear"],
    "convolution": PROGRAMS["convolution"],
    "broadcast": (lambda t: t[0] * t[1], [(5, 4), (4,)]),
    "branch": (lambda t: t[0] * 2 + (t[1].sin() * t[2]).cos(), [(4,), (4,), (4,)]),
    "gather": (lambda t: t[0] + t[1].gather(0, wg.tensor([1, 0, 1], device="cpu")), [(3,), (2,)]),
}


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("name", OPERANDS)
def test_only_gradients_that_lead_to_inputs_are_computed(name: str) -> None:
    """The gradient of one operand takes as many launches as if the others required no gradient."""
    program, shapes = OPERANDS[name]
    for i in range(len(shapes)):
        operands = [leaf(*shape, seed=k) for k, shape in enumerate(shapes)]
        constants = [operand if k == i else operand.detach() for k, operand in enumerate(operands)]
        results = []

        def backward_launches(tensors: Tensors, i: int = i, results: Tensors = results) -> int:
            def work() -> None:
                out = program(tensors)
                before = device("cpu").driver.launches
                results.append(wg.autograd.grad(out, tensors[i], wg.ones_like(out))[0])
                counts.append(device("cpu").driver.launches - before)

            counts: list[int] = []
            work()
            wg.cpu.synchronize()
            work()
            return counts[-1]

        assert backward_launches(operands) == backward_launches(constants), (name, i)
        np.testing.assert_allclose(results[0].numpy(), results[-1].numpy(), rtol=1e-6)


@pytest.mark.usefixtures("either_engine")
def test_inputs_that_are_results() -> None:
    """Gradients of a result are returned, and those of operands behind it are not computed."""
    x, w = leaf(4), leaf(4, seed=1)
    hidden = x.sin()
    out = (hidden * w).exp()
    launches = count_launches(lambda: wg.autograd.grad(out, hidden, wg.ones(4, device="cpu"), retain_graph=True))
    (grad,) = wg.autograd.grad(out, hidden, wg.ones(4, device="cpu"), retain_graph=True)
    np.testing.assert_allclose(grad.numpy(), (out * w).detach().numpy(), rtol=1e-6)
    both = count_launches(lambda: wg.autograd.grad(out, (hidden, w), wg.ones(4, device="cpu"), retain_graph=True))
    assert both == launches + 1
    assert x.grad is None
    assert w.grad is None


@pytest.mark.usefixtures("either_engine")
def test_a_leaf_without_requires_grad_takes_no_launches() -> None:
    x, w = leaf(4, 4), leaf(4, 4, seed=1)
    out = (x @ w).sum()
    both = count_launches(lambda: out.backward(retain_graph=True))
    w.requires_grad_(False)
    x.grad = w.grad = None
    out.backward(retain_graph=True)
    assert w.grad is None
    assert count_launches(lambda: out.backward(retain_graph=True)) < both
    np.testing.assert_allclose(x.grad.numpy(), 3 * np.ones((4, 4)) @ w.numpy().T, rtol=1e-5)


@pytest.mark.usefixtures("either_engine")
def test_hooks_and_custom_functions_among_other_nodes() -> None:
    class Double(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            calls.append("function")
            return grad * 2

    calls: list[str] = []
    x = leaf(3)
    a = x * 3
    a.register_hook(lambda grad: calls.append("hook"))
    a.retain_grad()
    b = Double.apply(a) * a
    b.register_hook(lambda grad: grad * 10)
    (b.sin() + x).sum().backward()
    values = 3 * x.detach().numpy().astype(np.float64)
    expected = 10 * np.cos(2 * values * values) * 4 * values
    np.testing.assert_allclose(a.grad.numpy(), expected, rtol=1e-4)
    np.testing.assert_allclose(x.grad.numpy(), 3 * expected + 1, rtol=1e-4)
    assert calls == ["function", "hook"]


@pytest.mark.usefixtures("either_engine")
def test_errors_are_raised_in_the_middle() -> None:
    x = leaf(3)
    y = x.exp()
    loss = (y * y).sin().sum()
    with wg.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified in place"):
        loss.backward()
    z = x.exp().sum()
    z.backward()
    with pytest.raises(RuntimeError, match="freed"):
        z.backward()
    with pytest.raises(RuntimeError, match="freed"):
        wg.autograd.grad(z, x)

    def fail(grad: Any) -> None:
        raise LookupError("from a hook")

    h = x.sin()
    h.register_hook(fail)
    with pytest.raises(LookupError, match="from a hook"):
        h.exp().sum().backward()
    x.grad = None
    x.sin().sum().backward()  # the next run is not affected
    np.testing.assert_allclose(x.grad.numpy(), np.cos(x.detach().numpy()), rtol=1e-6)


@pytest.mark.usefixtures("either_engine")
def test_anomaly_mode_sees_every_node() -> None:
    x = wg.zeros(2, device="cpu").requires_grad_()
    with wg.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="sqrt"):
        (x.sqrt() * 0.0).sum().backward()


@pytest.mark.usefixtures("either_engine")
def test_graphs_are_freed() -> None:
    x = leaf(64)
    gc.collect()
    allocated = wg.memory_allocated("cpu")
    for create_graph in (False, True):
        y = x.sin()
        saved = weakref.ref(y)
        z = (y[1:] * y[:-1]).sum()
        grads = wg.autograd.grad(z, x, create_graph=create_graph)
        del y, z, grads
        assert saved() is None  # without a garbage collection
    assert wg.memory_allocated("cpu") == allocated


@needs_c
def test_nothing_leaks() -> None:
    x, w, bias = leaf(4, 4), leaf(4, 4, seed=1), leaf(4, seed=2)

    def work() -> None:
        y = F.layer_norm(x @ w + bias, (4,), bias, bias)
        z = (y[0] * y[1:].mean(0)).transpose(0, 0).view(2, 2) + x.sum().half().float() + y.max(1).values.sum()
        z.unsqueeze(0).expand(3, 2, 2).sum().backward()
        wg.autograd.grad((x * w).sum(), x)
        x.grad = w.grad = bias.grad = None

    for _ in range(20):
        work()
    wg.cpu.synchronize()
    objects = (x, w, bias, x.meta, bias.meta, None, True, False, *engine._BackwardPass(False, False, None).__slots__)
    gc.collect()
    before = [sys.getrefcount(o) for o in objects], len(gc.get_objects()), wg.memory_allocated("cpu")
    for _ in range(300):
        work()
    gc.collect()
    after = [sys.getrefcount(o) for o in objects], len(gc.get_objects()), wg.memory_allocated("cpu")
    assert after[2] == before[2]
    # A leak would appear 300 times; caches of the interpreter change counts by a few dozen.
    assert max(abs(a - b) for a, b in zip(before[0], after[0], strict=True)) < 150
    assert abs(before[1] - after[1]) < 150


@pytest.fixture
def interval_timer() -> Iterator[None]:
    """Interrupt the test after 30 ms of processor time, and every 30 ms until it ends."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGVTALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, previous)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.usefixtures("either_engine", "interval_timer")
def test_ctrl_c_stops_a_long_backward() -> None:
    """A signal's handler runs between two nodes, not after the last one."""
    x = leaf(3)
    y = x
    for _ in range(60000):
        y = y * 1.0
    loss = y.sum()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.01)
    with pytest.raises(KeyboardInterrupt):
        loss.backward()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    assert x.grad is None


@pytest.mark.usefixtures("either_engine")
def test_threads_share_a_graph() -> None:
    """Several threads go through one graph at once; each gets the whole gradient."""
    x = leaf(8)
    y = x
    for _ in range(40):
        y = (y * 1.01).sin() + x
    loss = y.sum()
    (expected,) = wg.autograd.grad(loss, x, retain_graph=True)
    results: list[Any] = []

    def work() -> None:
        for _ in range(10):
            results.append(wg.autograd.grad(loss, x, retain_graph=True)[0])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40
    for result in results:
        np.testing.assert_array_equal(result.numpy(), expected.numpy())


@needs_c
@pytest.mark.parametrize(
    "statement",
    [
        "node.edges = 5", "node.edges = ((5, 0), (x, 0))", "node.edges = ((node.edges[0][0], 7), node.edges[1])",
        "node.saved = 5", "node.saved = (5,)", "node.saved[0].storage = 5", "del node.saved[0].version",
        "node.recipe = None", "node.sequence = 'a'", "del node.statics", "node.saved_out = None", "del node.hooks",
        "edge.recipe = 7", "edge.sequence = 'a'", "del edge.sequence", "edge.sequence = 1.5", "edge.sequence = 1 << 70",
        "del node.saved[0].needs_grad", "node.saved[0].needs_grad = 5", "del node.saved[0].node",
        "node.saved[0].node = 5", "del node.saved[0].output", "node.saved[0].output = 'a'", "del node.saved[0].start",
        "node.saved[0].start = 'a'", "del edge.saved_out[0].meta", "edge.saved_out[0].meta = 5",
        "del edge.saved_out[0].start", "node.recipe.applications = 5", "node.recipe.applications = (5, 5)",
        "del node.recipe.applications", "del node.recipe.saved_operands", "node.recipe.saved_outputs = 5",
        "edge.recipe.out_metas = 5", "del edge.recipe.out_metas", "edge.recipe.out_metas *= 2",
        "node.recipe.seeds = ()", "node.recipe.applications[0].sources = (99, -7)",
        "del node.recipe.applications[0].sources",
        "part.saved = 5", "part.saved_out = None", "part.statics = 5", "node.hooks = {0: (0, without_layout)}",
        "part.hooks = {0: (0, without_layout)}", "edge.hooks = {0: (0, without_layout)}",
        "share_with_hook(lambda x: x.view(2, 2).sum(0))", "share_with_hook(lambda x: x.view(2, 2).amax(0))",
        "share_with_hook(lambda x: x[2:])", "share_with_hook(lambda x: x[::2] * x[0])",
        "share_with_hook(lambda x: x[:2].view(1, 2).view(2))", "share_with_hook(lambda x: x[:1] + x[2:])",
    ],
)  # fmt: skip
def test_attributes_of_a_wrong_type_do_not_crash(statement: str) -> None:
    """C reads nodes' slots by their offset; a value of another type must reach Python, or raise."""
    process = subprocess.run(
        [sys.executable, "-c", f"""
import weftgrad as wg
def without_layout(grad):
    del grad.meta
def share_with_hook(function):
    w = wg.ones(2, device="cpu", requires_grad=True)
    y = function(x)
    other = w.cos()  # later than y, so the hook runs before y's node, which gets the same gradient
    other.register_hook(without_layout)
    wg.autograd.grad((y + other).sum(), (x, other))
x = wg.ones(4, device="cpu", requires_grad=True)
for change in (False, True):
    y = x.exp() * x.cos()
    node = y.grad_fn
    edge = node.edges[0][0]
    y = y[1:]
    part = y.grad_fn
    try:
        if change:
            {statement}
        y.sum().backward()
    except Exception as error:
        assert change and not isinstance(error, SystemError)
print("end")
"""],
        capture_output=True, text=True, timeout=300, env={**os.environ, "WEFTGRAD_NATIVE": "1"},
    )  # fmt: skip
    assert (process.stdout.strip(), process.returncode) == ("end", 0), (process.returncode, process.stderr)


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("true", [1, np.bool_(True), "yes"])
def test_arguments_that_are_true_but_not_true_itself(true: Any) -> None:
    """`retain_graph` keeps the graph, and `create_graph` records gradients, for every value that is true."""
    x = leaf(3)
    y = (x.sin() * x).sum()
    y.backward(retain_graph=true)
    y.backward()
    values = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), 2 * (np.cos(values) * values + np.sin(values)), rtol=1e-5)
    (first,) = wg.autograd.grad((x**3 + x * x).sum(), x, create_graph=true)
    assert first.requires_grad
    (second,) = wg.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 6 * values + 2, rtol=1e-5)


@pytest.mark.usefixtures("either_engine")
def test_leaves_whose_requires_grad_was_set_to_a_number() -> None:
    """C compares `needs_grad` with True."""
    lazy = wg.nn.UninitializedParameter(requires_grad=1, device="cpu")
    later = wg.nn.UninitializedParameter(requires_grad=False, device="cpu").requires_grad_(1)
    for parameter in (lazy, later):
        parameter.materialize((3,))
        wg.nn.init.ones_(parameter)
    subclass = wg.Tensor._make_subclass(wg.nn.Parameter, wg.ones(3, device="cpu"), 1)
    tensor = wg.Tensor._make_subclass(wg.Tensor, wg.ones(3, device="cpu"), 1)
    leaves = [lazy, later, subclass, tensor]
    sum(leaf * (i + 1) for i, leaf in enumerate(leaves)).sum().backward()
    for i, parameter in enumerate(leaves):
        assert parameter.needs_grad is True
        assert parameter.grad.tolist() == [i + 1.0] * 3


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize(
    "op", ["sum", "copy", "expand", "view", "mul", "add", "cos", "fill", "full_like_as", "mul_sum"]
)
@pytest.mark.parametrize("value", [None, 7])
def test_a_mode_that_returns_no_tensor_raises_or_is_ignored(op: str, value: Any) -> None:
    """A mode may return any object for any op of backward; C must not take it for a tensor."""

    class Replace(Mode):
        def call(self, record: Any, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
            return value if record.name == op else self.proceed(record, operands, statics, outs, in_place)

    x, w = leaf(4, 3), leaf(3, seed=1)
    y = ((x.sin() * w)[1:].mean(0) + w.sum(0, keepdim=True).view(1)).sum() + (w + x).sum()
    with Replace(), contextlib.suppress(Exception):
        y.backward()
    x.grad = w.grad = None
    (x.sin() * w).sum().backward()  # the next run is not affected
    np.testing.assert_allclose(w.grad.numpy(), np.sin(x.detach().numpy()).sum(0), rtol=1e-5)


def test_cached_seeds_may_be_added_while_gradients_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may cache a seed at any time."""

    class Storage:
        """Stands for a seed whose comparison lets another thread run."""

        @property
        def storage(self) -> object:
            seeds[object()] = (self, 0)
            return None

    x = leaf()
    (expected,) = wg.autograd.grad(x * 2, x)
    seeds: dict[Any, Any] = {**engine._ones, **{object(): (Storage(), 0) for _ in range(3)}}
    monkeypatch.setattr(engine, "_ones", seeds)
    (grad,) = wg.autograd.grad(x * 2, x)
    assert grad.item() == expected.item() == 2
