"""The path of every op in C beside the same in Python: what they make is compared slot by slot and bit by bit."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weftgrad as wg
from weftgrad.runtime import context, dispatch, native
from weftgrad.runtime.autograd.node import Saved
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import ArgumentError, GradientError, ShapeError
from weftgrad.runtime.records import registry
from weftgrad.runtime.tensor import Extra, Tensor

needs_c = pytest.mark.skipif(not native.present, reason="compiled without C")
OF_RESULT = ("meta", "needs", "output", "extra")
OF_STORAGE = ("_pool", "device", "nbytes", "owner", "version")


def cpu(*shape: int, grad: bool = False, dtype: Any = None) -> Any:
    count = int(np.prod(shape, dtype=int))
    return wg.tensor((np.arange(count) % 7 - 3).reshape(shape), device="cpu", dtype=dtype or wg.float32).requires_grad_(
        grad
    )


def slots(value: Any) -> dict[str, Any]:
    """Every slot of an object that is set."""
    names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ()) if n != "__weakref__"]
    return {n: getattr(value, n) for n in names if hasattr(value, n)}


def as_seen(value: Any) -> Any:
    """An object in a form that equals that of its twin: what differs from call to call left out."""
    if isinstance(value, Extra | Saved):
        return {k: as_seen(v) for k, v in slots(value).items() if k not in ("storage", "start")}
    if isinstance(value, tuple):
        return tuple(map(as_seen, value))
    return id(value) if isinstance(value, Tensor) else value


def compare(record: str, operands: tuple[Any, ...], statics: tuple[Any, ...] = ()) -> None:
    op = registry[record]
    dispatch.call(op, operands, statics)  # planned, and its kernels built
    made = [f(op, operands, statics) for f in (dispatch.call, dispatch._call)]
    ours, twins = (m if isinstance(m, tuple) else (m,) for m in made)
    assert len(ours) == len(twins)
    for a, b in zip(ours, twins, strict=True):
        assert type(a) is type(b) is Tensor
        assert slots(a).keys() == slots(b).keys(), record
        assert slots(a.storage).keys() == slots(b.storage).keys(), record
        for name in OF_RESULT:
            assert as_seen(getattr(a, name)) == as_seen(getattr(b, name)), (record, name)
        for name in OF_STORAGE:
            assert getattr(a.storage, name) is getattr(b.storage, name) or getattr(a.storage, name) == getattr(
                b.storage, name
            ), (record, name)
        for each in (a.storage, b.storage):
            assert each.block is None or each.buffer is each.block.segment.handle.buffer is not None, record
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy(), err_msg=record)
        compare_nodes(a.node, b.node, record)


def compare_nodes(a: Any, b: Any, record: str) -> None:
    assert (a is None) == (b is None), record
    if a is None:
        return
    assert slots(a).keys() == slots(b).keys(), record
    for name in ("recipe", "statics", "hooks", "function", "freed", "trace"):
        assert getattr(a, name) == getattr(b, name), (record, name)
    for name in ("edges", "saved", "saved_out"):
        assert as_seen(getattr(a, name)) == as_seen(getattr(b, name)), (record, name)
    assert a.sequence < b.sequence  # one numbering


@needs_c
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("size", [5, 1 << 17])  # on the calling thread; by the workers
def test_calls_make_the_same(size: int, grad: bool) -> None:
    x, y = cpu(size, grad=grad), cpu(size)
    compare("add", (x, y))
    compare("add", (y, x))
    compare("mul", (x, 2.5))
    compare("mul", (True, x))
    compare("exp", (x,))
    compare("softmax", (cpu(4, size, grad=grad),), (-1,))
    compare("add", (x * 1, y.view(size)))  # of a result with a node, and a view


@needs_c
def test_views_make_the_same() -> None:
    for grad in (False, True):
        x = cpu(6, 4, grad=grad)
        y = x * 1
        with wg.enable_grad():
            compare("transpose", (y,), (0, 1))
            compare("transpose", (y.transpose(0, 1),), (0, 1))
            compare("expand", (y[:, :1],), ((6, 3),))


@needs_c
def test_the_launcher_is_in_use() -> None:
    state = dispatch._local.state
    x, y = cpu(33), cpu(33)
    _ = x + y
    key = (registry["add"], (), x.meta, y.meta, 0)
    assert type(state.plans[key].run).__name__ == "HostLauncher"
    before, driver = device("cpu").driver.launches, device("cpu").driver
    _ = x + y
    assert driver.launches == before + 1
    assert dispatch.call is not dispatch._call


WHOLE = st.one_of(st.booleans(), st.integers(-(1 << 70), 1 << 70), st.integers(-300, 300))
REAL = st.one_of(WHOLE, st.floats(width=64), st.floats(1e38, 1e39), st.floats(6e4, 7e4))
ADDED = st.one_of(
    st.tuples(st.sampled_from(["float32", "float64", "float16"]), REAL),
    st.tuples(st.sampled_from(["int8", "uint8", "int16", "int32", "int64"]), WHOLE),
)


@needs_c
@settings(max_examples=60, deadline=None)
@given(added=ADDED)
def test_numbers_reach_kernels_as_they_do_from_python(added: tuple[str, Any]) -> None:
    dtype, number = added
    kind = getattr(wg, dtype)
    x = cpu(3, dtype=kind)
    record, out = registry["add"], wg.empty(3, device="cpu", dtype=kind)
    planned = dispatch.plan_into(record, (x, type(number)(1)), (), (out,))
    assert type(planned.run).__name__ == "HostLauncher"
    stream = device("cpu").driver.default_stream
    found = []
    for run in (planned.run, planned.run.fallback):
        try:
            run([x, out], [number], stream)
            found.append(out.numpy().tobytes())
        except ArgumentError as error:
            found.append(str(error).encode())
    assert found[0] == found[1], (dtype, number)


@needs_c
def test_what_is_not_plain_goes_by_python() -> None:
    x = cpu(3)
    assert (x[:0] + x[:0]).shape == (0,)
    with pytest.raises(ShapeError, match="add"):
        _ = x + cpu(2)
    with pytest.raises(TypeError):
        dispatch.call(registry["add"], (x, x), ([],))  # a key that cannot be one
    with pytest.raises(TypeError):
        dispatch.call()
    with pytest.raises(ArgumentError, match="not str"):
        dispatch.call(registry["add"], (x, "1"))
    with wg.stream(wg.Stream("cpu")):
        assert (x + x).tolist() == (x * 2).tolist()
    base = cpu(4)
    view = (base * 1).view(2, 2)
    view.add_(1)
    assert (view + 0).tolist() == (base + 1).view(2, 2).tolist()


@needs_c
def test_nothing_leaks() -> None:
    x, y = cpu(64, grad=True), cpu(64)
    number = 4711.5

    def work() -> None:
        z = (x + y) * number
        (z.view(8, 8).transpose(0, 1).sum()).backward()
        x.grad = None

    for _ in range(20):
        work()
    wg.cpu.synchronize()  # kernels that are compiled for the first time
    gc.collect()
    held = (x.meta, y.meta, registry["add"], number, None, x.storage, x, y)
    before = [sys.getrefcount(o) for o in held], len(gc.get_objects())
    allocated = wg.memory_allocated("cpu")
    for _ in range(500):
        work()
    gc.collect()
    after = [sys.getrefcount(o) for o in held], len(gc.get_objects())
    assert wg.memory_allocated("cpu") == allocated
    # What a call leaves behind would be here 500 times; caches of the interpreter change by some dozens.
    assert max(abs(a - b) for a, b in zip(before[0], after[0], strict=True)) < 250
    assert abs(after[1] - before[1]) < 250


@needs_c
def test_threads_share_a_pool() -> None:
    """Blocks taken in C while other threads take them in Python: all results right, and the pool's books in order."""
    wg.cpu.synchronize()
    gc.collect()
    held = wg.memory_allocated("cpu")
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for size in rng.integers(1, 5000, 300):
            x = wg.full((int(size),), float(seed), device="cpu")
            y = x + x * 2
            if float(y[-1]) != 3 * seed:
                wrong.append((seed, int(size)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    gc.collect()
    assert not wrong
    assert wg.memory_allocated("cpu") == held


PROGRAM = """
import json, sys
import weftgrad as wg
from weftgrad import nn
wg.manual_seed(3)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to("cpu")
optimizer = wg.optim.SGD(model.parameters(), lr=1e-2)
for step in range(4):
    x, y = wg.rand(32, 64, device="cpu"), wg.randint(0, 10, (32,), device="cpu")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
stats = wg.memory_stats("cpu")
kept = {k: v for k, v in stats.items() if "allocated" in k or "reserved" in k or "allocations" in k}
from weftgrad.runtime.device import device
print(json.dumps([float(loss).hex(), [float(p.sum()).hex() for p in model.parameters()], kept,
    device("cpu").driver.launches]))
"""


def program(text: str, native: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=300,
        env={**os.environ, "WEFTGRAD_NATIVE": native},
    )  # fmt: skip


@needs_c
def test_a_training_program_is_the_same() -> None:
    answers = []
    for each in ("1", "0"):
        done = program(PROGRAM, each)
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("place", ["cpu", "opencl:0"])
def test_a_process_may_end_with_work_queued(place: str) -> None:
    """Memory goes with the interpreter: kernels that still run on it are waited for."""
    done = program(
        f"""
        import weftgrad as wg
        a = wg.rand(1 << 20, device="{place}")
        for _ in range(200):
            b = a * a
        """.replace("\n        ", "\n"),
        os.environ.get("WEFTGRAD_NATIVE", "1"),
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_planned_call_after_a_fork() -> None:
    done = program(
        """
        import os, warnings
        import weftgrad as wg
        warnings.simplefilter("ignore", DeprecationWarning)
        x = wg.rand(1 << 18, device="cpu")
        y = x + x
        child = os.fork()
        if child == 0:
            y = x + x
            os._exit(7 if bool((y == 2 * x).all()) else 8)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """.replace("\n        ", "\n"),
        os.environ.get("WEFTGRAD_NATIVE", "1"),
    )
    assert done.stdout.strip() == "7", done


def test_other_sources_are_told() -> None:
    done = program(
        """
        from weftgrad.runtime import native
        class Other: pass
        try:
            native.bind(Other, *[lambda: None] * 3)
        except ImportError as error:
            print("WEFTGRAD_NATIVE=0" in str(error))
        """.replace("\n        ", "\n"),
        "1",
    )
    assert done.stdout.strip() == "True" or not native.present, done


@needs_c
def test_results_written_to_tensors_make_the_same() -> None:
    """In place and `out=`: values, versions, and what is refused."""
    record = registry["add"]
    found = []
    for form in (dispatch.call_into, dispatch._call_into):
        x, y, base = cpu(6), cpu(6), cpu(2, 6)
        dispatch.call_into(record, (x, y), (), (x,), in_place=True)  # planned
        seen: list[Any] = [form(record, (x, y), (), (x,), in_place=True) is x, x.tolist(), x.storage.version]
        seen.append(form(record, (x, 2.0), (), (y,), in_place=False) is y)
        seen += [y.tolist(), y.storage.version]
        form(record, (base[0], base[1]), (), (base[1],), in_place=True)
        seen += [base.tolist(), base.storage.version]
        for wrong in ((base[0, 1:], base[0, :-1]), (base[:, 1:], base[:, :-1])):
            with pytest.raises(ShapeError, match="share memory"):
                form(record, (wrong[0], 1.0), (), (wrong[1],), in_place=False)
        leaf = cpu(6, grad=True)
        with pytest.raises(GradientError):
            form(record, (leaf, y), (), (leaf,), in_place=True)
        with pytest.raises(GradientError):
            form(record, (leaf, y), (), (x,), in_place=False)
        z = leaf * 1
        form(record, (z, y), (), (z,), in_place=True)
        (z * z).sum().backward()
        seen += [leaf.grad.tolist(), z.storage.version]
        view = (leaf * 1)[2:4]
        form(record, (view, 1.0), (), (view,), in_place=True)
        base_node = view.extra.base.node
        assert base_node is not None  # the view's history was rewritten, and with it that of its base
        assert base_node.function is not None
        seen.append(view.tolist())
        found.append(seen)
    assert found[0] == found[1]


@needs_c
def test_empty_tensors_make_the_same() -> None:
    for layout in (cpu(3, 4).meta, cpu(3, 4).t().meta, cpu(0, 2).meta, cpu(4, 4)[:, :2].meta):
        a, b = dispatch.empty(layout), dispatch._empty(layout)
        assert slots(a).keys() == slots(b).keys()
        assert a.meta is b.meta
        for name in OF_STORAGE:
            assert getattr(a.storage, name) == getattr(b.storage, name), (layout, name)


@needs_c
def test_operators_are_those_of_python() -> None:
    x, y = cpu(5), cpu(5)
    assert type(vars(Tensor)["__add__"]).__name__ == "Operator"
    for name, other in (
        ("__add__", y), ("__radd__", 2), ("__rsub__", 2.5), ("__truediv__", True), ("__pow__", 2), ("__lt__", y),
        ("__sub__", np.float64(2)), ("__mul__", np.float32(2)), ("__rpow__", 2), ("__add__", np.ones(5, np.float32)),
    ):  # fmt: skip
        method = vars(Tensor)[name]
        found, expected = method(x, other), method.__wrapped__(x, other)
        assert found.meta is expected.meta, name
        assert found.tolist() == expected.tolist(), name
    assert vars(Tensor)["__add__"](x, "1") is NotImplemented
    with pytest.raises(TypeError):
        _ = x + "1"
    assert x.__add__(y).tolist() == (x + y).tolist()  # bound
    with pytest.raises(TypeError):
        vars(Tensor)["__add__"](x)


def test_operators_have_names() -> None:
    x = wg.ones(3, device="cpu")
    for name in ("__add__", "__rmul__", "__isub__", "__eq__"):
        method = getattr(Tensor, name)
        assert (method.__name__, method.__qualname__) == (name, f"Tensor.{name}")
    assert (pickle.loads(pickle.dumps(x.__add__))(x) == 2).all()


@needs_c
def test_a_dying_state_gives_way_to_other_threads() -> None:
    """What goes with a thread's state may run Python, and other threads: the one that calls keeps its own state."""
    dying, ends = threading.Event(), threading.Event()

    class Slow:
        def __del__(self) -> None:
            dying.set()
            time.sleep(0.2)

    def first() -> None:
        x + x
        context.state().plans[("slow",)] = Slow()

    def second() -> None:
        dying.wait(5)
        with wg.no_grad():
            x + x
            ends.wait(5)

    x = cpu(4)
    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    del thread
    thread = threading.Thread(target=second)
    thread.start()
    try:
        p = cpu(4, grad=True)
        assert [(p + x).requires_grad for _ in range(3)] == [True] * 3
    finally:
        ends.set()
        thread.join()
