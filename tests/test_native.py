"""Compare the C implementation of op calls with the Python one: all slots of their results, and all bits."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_calls import cpu, needs_c, run_program

import weftgrad as wg
from weftgrad.runtime import dispatch, native
from weftgrad.runtime.autograd.node import Saved
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import ArgumentError, GradientError, ShapeError
from weftgrad.runtime.records import registry
from weftgrad.runtime.tensor import Extra, Tensor

RESULT_SLOTS = ("meta", "needs_grad", "output", "extra")
STORAGE_SLOTS = ("_pool", "device", "nbytes", "owner", "version")


def slots(value: Any) -> dict[str, Any]:
    """Return the set slots of an object, by name."""
    names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ()) if n != "__weakref__"]
    return {n: getattr(value, n) for n in names if hasattr(value, n)}


def comparable(value: Any) -> Any:
    """Return a form of an object that is equal for equal calls, without the fields that differ from call to call."""
    if isinstance(value, Extra | Saved):
        return {k: comparable(v) for k, v in slots(value).items() if k not in ("storage", "start")}
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    return id(value) if isinstance(value, Tensor) else value


def compare(record: str, operands: tuple[Any, ...], statics: tuple[Any, ...] = ()) -> None:
    op = registry[record]
    dispatch.call(op, operands, statics)  # plan the call and build its kernels
    results = [f(op, operands, statics) for f in (dispatch.call, dispatch._call)]
    ours, twins = (m if isinstance(m, tuple) else (m,) for m in results)
    assert len(ours) == len(twins)
    for a, b in zip(ours, twins, strict=True):
        assert type(a) is type(b) is Tensor
        assert slots(a).keys() == slots(b).keys(), record
        assert slots(a.storage).keys() == slots(b.storage).keys(), record
        for name in RESULT_SLOTS:
            assert comparable(getattr(a, name)) == comparable(getattr(b, name)), (record, name)
        for name in STORAGE_SLOTS:
            assert getattr(a.storage, name) is getattr(b.storage, name) or getattr(a.storage, name) == getattr(
                b.storage, name
            ), (record, name)
        for storage in (a.storage, b.storage):
            assert storage.block is None or storage.buffer is storage.block.segment.handle.buffer is not None, record
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
        assert comparable(getattr(a, name)) == comparable(getattr(b, name)), (record, name)
    assert a.sequence < b.sequence  # both number their nodes from one counter


@needs_c
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("size", [5, 1 << 17])  # small runs on the calling thread, large on the workers
def test_calls_give_the_same_results(size: int, grad: bool) -> None:
    x, y = cpu(size, grad=grad), cpu(size)
    compare("add", (x, y))
    compare("add", (y, x))
    compare("mul", (x, 2.5))
    compare("mul", (True, x))
    compare("exp", (x,))
    compare("softmax", (cpu(4, size, grad=grad),), (-1,))
    compare("add", (x * 1, y.view(size)))  # operands with a node, and a view


@needs_c
def test_views_are_the_same() -> None:
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
    launches_before, driver = device("cpu").driver.launches, device("cpu").driver
    _ = x + y
    assert driver.launches == launches_before + 1
    assert dispatch.call is not dispatch._call


INTEGERS = st.one_of(st.booleans(), st.integers(-(1 << 70), 1 << 70), st.integers(-300, 300))
NUMBERS = st.one_of(INTEGERS, st.floats(width=64), st.floats(1e38, 1e39), st.floats(6e4, 7e4))

DTYPES_AND_NUMBERS = st.one_of(
    st.tuples(st.sampled_from(["float32", "float64", "float16"]), NUMBERS),
    st.tuples(st.sampled_from(["int8", "uint8", "int16", "int32", "int64"]), INTEGERS),
)


@needs_c
@settings(max_examples=60, deadline=None)
@given(dtype_and_number=DTYPES_AND_NUMBERS)
def test_numbers_reach_kernels_as_they_do_from_python(dtype_and_number: tuple[str, Any]) -> None:
    dtype, number = dtype_and_number
    kind = getattr(wg, dtype)
    x = cpu(3, dtype=kind)
    record, out = registry["add"], wg.empty(3, device="cpu", dtype=kind)
    plan = dispatch.plan_into(record, (x, type(number)(1)), (), (out,))
    assert type(plan.run).__name__ == "HostLauncher"
    stream = device("cpu").driver.default_stream
    results = []
    for run in (plan.run, plan.run.fallback):
        try:
            run([x, out], [number], stream)
            results.append(out.numpy().tobytes())
        except ArgumentError as error:
            results.append(str(error).encode())
    assert results[0] == results[1], (dtype, number)


@needs_c
def test_other_calls_fall_back_to_python() -> None:
    x = cpu(3)
    assert (x[:0] + x[:0]).shape == (0,)
    with pytest.raises(ShapeError, match="add"):
        _ = x + cpu(2)
    with pytest.raises(TypeError):
        dispatch.call(registry["add"], (x, x), ([],))  # an unhashable key
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


@pytest.mark.parametrize("native_switch", ["1", "0"])
def test_an_operand_may_get_other_memory_while_its_kernel_runs(native_switch: str) -> None:
    """A long kernel runs without the interpreter's lock, so another thread may free the operand's memory meanwhile."""
    process = run_program(
        """
        import threading
        import weftgrad as wg
        wg.set_num_threads(1)
        x, weight = wg.ones(64, 1 << 16, device="cpu"), wg.ones(1 << 16, 64, device="cpu")
        (x @ weight).tolist()  # compile the kernels
        results = []
        thread = threading.Thread(target=lambda: [results.append(x @ weight) for _ in range(10)])
        thread.start()
        while thread.is_alive():
            weight.data = wg.ones(1 << 16, 64, device="cpu")
            wg.empty_cache("cpu")  # unmaps the old memory
        print(all((result == 1 << 16).all() for result in results), len(results))
        """.replace("\n        ", "\n"),
        native_switch,
    )
    assert (process.returncode, process.stdout.split()) == (0, ["True", "10"]), process


@needs_c
def test_in_place_and_out_calls_are_the_same() -> None:
    """Compare values, versions and errors of in-place and `out=` calls."""
    record = registry["add"]
    outcomes = []
    for call in (dispatch.call_into, dispatch._call_into):
        x, y, base = cpu(6), cpu(6), cpu(2, 6)
        dispatch.call_into(record, (x, y), (), (x,), in_place=True)  # plan the call
        values: list[Any] = [call(record, (x, y), (), (x,), in_place=True) is x, x.tolist(), x.storage.version]
        values.append(call(record, (x, 2.0), (), (y,), in_place=False) is y)
        values += [y.tolist(), y.storage.version]
        call(record, (base[0], base[1]), (), (base[1],), in_place=True)
        values += [base.tolist(), base.storage.version]
        for views in ((base[0, 1:], base[0, :-1]), (base[:, 1:], base[:, :-1])):
            with pytest.raises(ShapeError, match="share memory"):
                call(record, (views[0], 1.0), (), (views[1],), in_place=False)
        leaf = cpu(6, grad=True)
        with pytest.raises(GradientError):
            call(record, (leaf, y), (), (leaf,), in_place=True)
        with pytest.raises(GradientError):
            call(record, (leaf, y), (), (x,), in_place=False)
        z = leaf * 1
        call(record, (z, y), (), (z,), in_place=True)
        (z * z).sum().backward()
        values += [leaf.grad.tolist(), z.storage.version]
        view = (leaf * 1)[2:4]
        call(record, (view, 1.0), (), (view,), in_place=True)
        base_node = view.extra.base.node
        assert base_node is not None  # writing the view also rewrites the history of its base
        assert base_node.function is not None
        values.append(view.tolist())
        outcomes.append(values)
    assert outcomes[0] == outcomes[1]


@needs_c
def test_empty_tensors_are_the_same() -> None:
    for layout in (cpu(3, 4).meta, cpu(3, 4).t().meta, cpu(0, 2).meta, cpu(4, 4)[:, :2].meta):
        a, b = dispatch.empty(layout), dispatch._empty(layout)
        assert slots(a).keys() == slots(b).keys()
        assert a.meta is b.meta
        for name in STORAGE_SLOTS:
            assert getattr(a.storage, name) == getattr(b.storage, name), (layout, name)


@needs_c
def test_operators_in_c_agree_with_python() -> None:
    x, y = cpu(5), cpu(5)
    assert type(vars(Tensor)["__add__"]).__name__ == "Operator"
    for name, operand in (
        ("__add__", y), ("__radd__", 2), ("__rsub__", 2.5), ("__truediv__", True), ("__pow__", 2), ("__lt__", y),
        ("__sub__", np.float64(2)), ("__mul__", np.float32(2)), ("__rpow__", 2), ("__add__", np.ones(5, np.float32)),
    ):  # fmt: skip
        method = vars(Tensor)[name]
        actual, expected = method(x, operand), method.__wrapped__(x, operand)
        assert actual.meta is expected.meta, name
        assert actual.tolist() == expected.tolist(), name
    assert vars(Tensor)["__add__"](x, "1") is NotImplemented
    with pytest.raises(TypeError):
        _ = x + "1"
    assert x.__add__(y).tolist() == (x + y).tolist()  # a bound method
    with pytest.raises(TypeError):
        vars(Tensor)["__add__"](x)


def test_operators_have_names() -> None:
    x = wg.ones(3, device="cpu")
    for name in ("__add__", "__rmul__", "__isub__", "__eq__"):
        method = getattr(Tensor, name)
        assert (method.__name__, method.__qualname__) == (name, f"Tensor.{name}")
    assert (pickle.loads(pickle.dumps(x.__add__))(x) == 2).all()


@needs_c
def test_a_sequence_holds_its_operands_and_numbers() -> None:
    """A step may let other threads change the caller's lists."""
    driver = device("cpu").driver
    operands, numbers = [wg.full((3,), 7.0, device="cpu")], [2.5 * len(os.sep)]
    alive = [weakref.ref(operands[0])]
    calls = []

    def clear(tensors: list[Any], scalars: list[Any], stream: Any) -> None:
        tensors.clear()
        operands.clear()
        numbers.clear()

    def read(tensors: list[Any], scalars: list[Any], stream: Any) -> None:
        assert alive[0]() is tensors[0]
        calls.append((tensors[0].tolist(), scalars))

    run = native.sequence(driver, [clear, read], (512,))
    run(operands, numbers, driver.default_stream)
    assert calls == [([7.0] * 3, [2.5])]
    calls.clear()
    gc.collect()
    assert alive[0]() is None
