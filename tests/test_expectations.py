"""Check behaviour that PyTorch users rely on without looking it up."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

DEVICES = ("cpu", "opencl:0")


# On OpenCL one dtype that is converted, and one that is not; PoCL takes seconds for each.
@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        *(("cpu", dtype) for dtype in ("float16", "bfloat16", "float32", "float64", "uint8", "int64")),
        ("opencl:0", "bfloat16"), ("opencl:0", "float32"),
        *(
            pytest.param("opencl:0", dtype, marks=pytest.mark.thorough)
            for dtype in ("float16", "float64", "uint8", "int64")
        ),
    ],
)  # fmt: skip
def test_comparisons_write_0_and_1_to_number_dtypes(device: Any, dtype: str) -> None:
    """Bool results written to `out` of another dtype: contiguous, strided, and results of reductions."""
    x = np.arange(37.0) % 3
    x_tensor = wg.tensor(x, dtype=wg.float32, device=device)
    for name, expected in (("gt", x > 1), ("eq", x == 1), ("logical_and", (x != 0))):
        strided = wg.empty(37, 2, dtype=getattr(wg, dtype), device=device)[:, 1]
        for out in (wg.empty(37, dtype=getattr(wg, dtype), device=device), strided):
            getattr(wg, name)(x_tensor, wg.ones(1, device=device), out=out)
            assert out.tolist() == expected.astype(float).tolist(), (name, device, dtype, out.stride())
    total = wg.empty((), dtype=getattr(wg, dtype), device=device)
    assert wg.any(x_tensor, out=total).item() == 1, (device, dtype)
    assert wg.all(x_tensor, out=total).item() == 0, (device, dtype)


def test_gradient_modes_decorate_generators() -> None:
    """The mode holds in the generator between two yields, and not in its caller."""

    @wg.no_grad()
    def steps() -> Any:
        received = []
        try:
            while True:
                try:
                    received.append((yield wg.is_grad_enabled()))
                except ValueError:
                    received.append("raised")
                if received[-1] is None:
                    return wg.is_grad_enabled(), received
        finally:
            closed.append(wg.is_grad_enabled())

    closed: list[bool] = []
    generator = steps()
    assert next(generator) is False
    assert wg.is_grad_enabled()
    assert generator.send("sent") is False
    assert generator.throw(ValueError()) is False
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == (False, ["sent", "raised", None])
    another = steps()
    next(another)
    another.close()
    assert closed == [False, False]
    assert wg.is_grad_enabled()


def test_decorated_functions_are_functions() -> None:
    def enabled() -> bool:
        return wg.is_grad_enabled()

    enabled.mode = True  # type: ignore[attr-defined]  an attribute of the function's own
    assert inspect.isfunction(wg.no_grad(enabled))
    assert wg.no_grad(enabled)() is False
    assert wg.inference_mode(wg.enable_grad(enabled))() is True


def test_gradient_modes_take_their_mode_by_name() -> None:
    with wg.inference_mode(mode=False):
        assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (False, True)
    with wg.inference_mode(mode=True), wg.set_grad_enabled(mode=True):
        assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (True, True)
    assert wg.no_grad(function=wg.is_grad_enabled)() is False


def test_gradient_modes_decorate_methods_and_nest() -> None:
    class Counter:
        @wg.no_grad
        def recorded(self) -> bool:
            return wg.is_grad_enabled()

        @wg.set_grad_enabled(False)
        def enabled(self) -> bool:
            return wg.is_grad_enabled()

    assert wg.is_grad_enabled()  # decorating changed nothing
    assert (Counter().recorded(), Counter().enabled()) == (False, False)
    with wg.inference_mode():
        assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (True, False)
        with wg.inference_mode(False):
            assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (False, True)
        with wg.enable_grad():
            assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (True, True)
    assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (False, True)
    with wg.set_grad_enabled(False):
        assert not wg.is_grad_enabled()
    assert wg.is_grad_enabled()


def test_shallow_copies_share_memory() -> None:
    x = wg.arange(4.0).requires_grad_()
    x.name = "x"  # type: ignore[attr-defined]
    copied = copy.copy(x)
    assert copied is not x
    assert (copied.data_ptr(), copied.requires_grad, copied.name) == (x.data_ptr(), True, "x")
    assert copy.copy(x * 2).is_leaf
    assert type(copy.copy(wg.nn.Parameter(x.detach()))) is wg.nn.Parameter


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.zero_(), lambda y: y.fill_(2.0), lambda y: y.copy_(wg.ones(3)), lambda y: y.normal_(),
        lambda y: y.uniform_(), lambda y: y.exponential_(), lambda y: y[:].zero_(), lambda y: y.view(3, 1).fill_(3.0),
    ],
)  # fmt: skip
def test_overwritten_values_have_zero_gradients(write: Any) -> None:
    x = wg.ones(3, requires_grad=True)
    y = x * 2
    write(y)
    assert y.requires_grad
    assert not y.is_leaf
    (y * y).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_values_replaced_by_copy_have_zero_gradients() -> None:
    x, a = wg.ones(3, requires_grad=True), wg.full((3,), 2.0, requires_grad=True)
    y = x * 2
    y.copy_(a)
    grads = wg.autograd.grad((y * y).sum(), [x, a])
    assert [f.tolist() for f in grads] == [[0, 0, 0], [4, 4, 4]]


def test_grad_of_unused_inputs_and_of_batched_grad_outputs() -> None:
    x, unused = wg.arange(3.0, requires_grad=True), wg.ones(2, requires_grad=True)
    grads = wg.autograd.grad((x * x).sum(), [x, unused], materialize_grads=True)
    assert [f.tolist() for f in grads] == [[0, 2, 4], [0, 0]]
    with pytest.raises(ValueError, match="allow_unused"):
        wg.autograd.grad((x * x).sum(), [unused], materialize_grads=True, allow_unused=False)
    (jacobian,) = wg.autograd.grad(x * x * x, x, wg.eye(3), is_grads_batched=True, create_graph=True)
    assert jacobian.tolist() == [[0, 0, 0], [0, 3, 0], [0, 0, 12]]
    (second,) = wg.autograd.grad(jacobian.sum(), x)
    assert second.tolist() == [0, 6, 12]
    with pytest.raises(ValueError, match="grad: 1 tensors and 2 gradients"):
        wg.autograd.grad((x * x).sum(), x, [wg.ones(()), wg.ones(())])
    with pytest.raises(ValueError, match="one more dimension"):
        wg.autograd.grad([x * x, x.sum()], x, [wg.eye(3), wg.ones(2)], is_grads_batched=True)


_F = "float32"
OUT_CASES: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "add": (lambda x, out: wg.add(x, 1, out=out), [[1, 2, 3], [4, 5, 6]], "float32"),
    "mm": (lambda x, out: wg.mm(x, x.T, out=out), [[5, 14], [14, 50]], "float32"),
    "matmul": (lambda x, out: wg.matmul(x, x[0], out=out), [5, 14], "float32"),
    "addmm": (lambda x, out: wg.addmm(wg.ones(2, 2), x, x.T, out=out), [[6, 15], [15, 51]], "float32"),
    "addmv": (lambda x, out: wg.addmv(wg.ones(2), x, x[0], beta=2, out=out), [7, 16], "float32"),
    "baddbmm": (lambda x, out: wg.baddbmm(wg.ones(2, 2), x[None], x.T[None], out=out), [[[6, 15], [15, 51]]], _F),
    "sum": (lambda x, out: wg.sum(x, 0, out=out), [3, 5, 7], "float32"),
    "argmax": (lambda x, out: wg.argmax(x, 1, out=out), [2, 2], "int64"),
    "cumsum": (lambda x, out: wg.cumsum(x, 1, out=out), [[0, 1, 3], [3, 7, 12]], "float32"),
    "cat": (lambda x, out: wg.cat([x, x], out=out), [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]], "float32"),
    "index_select": (lambda x, out: wg.index_select(x, 1, wg.tensor([2]), out=out), [[2], [5]], "float32"),
    "zeros": (lambda x, out: wg.zeros(2, 1, out=out), [[0], [0]], "float32"),
    "arange": (lambda x, out: wg.arange(3, out=out), [0, 1, 2], "float32"),
    "where": (lambda x, out: wg.where(x > 2, x, -1.0, out=out), [[-1, -1, -1], [3, 4, 5]], "float32"),
    "nan_to_num": (lambda x, out: wg.nan_to_num(x / 0, 7.0, 8.0, out=out), [[7, 8, 8], [8, 8, 8]], "float32"),
    "bernoulli": (lambda x, out: wg.bernoulli((x > 2).float(), out=out), [[0, 0, 0], [1, 1, 1]], "float32"),
    "multinomial": (lambda x, out: wg.multinomial(wg.tensor([0.0, 1.0]), 1, out=out), [1], "int64"),
    "clamp": (lambda x, out: wg.clamp(x, 1, 4, out=out), [[1, 1, 2], [3, 4, 4]], "float32"),
    "softmax": (lambda x, out: wg.softmax(x * 0, 0, out=out), [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]], "float32"),
    "angle": (lambda x, out: wg.angle(x, out=out), [[0, 0, 0], [0, 0, 0]], "float32"),
}


@pytest.mark.parametrize("name", OUT_CASES)
def test_out_without_elements_gets_memory(name: str) -> None:
    """`out=torch.empty(0)` gets memory on the first call, and the second call reuses it."""
    function, expected, dtype = OUT_CASES[name]
    x, out = wg.arange(6.0).reshape(2, 3), wg.empty(0, dtype=getattr(wg, dtype))
    returned = function(x, out)
    assert returned is out
    assert out.tolist() == expected, name
    memory = out.data_ptr()
    function(x, out.fill_(9))
    assert (out.tolist(), out.data_ptr()) == (expected, memory), name
    with pytest.raises(wg.runtime.errors.ShapeError, match=r"out"):
        function(x, wg.empty(5, 7, dtype=getattr(wg, dtype)))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_sequences_of_an_empty_batch(kind: str, batch_first: bool) -> None:
    module = getattr(wg.nn, kind)(3, 4, 2, batch_first=batch_first, bidirectional=True)
    x = wg.zeros(*((0, 5, 3) if batch_first else (5, 0, 3)), requires_grad=True)
    with wg.no_grad():
        assert module(x)[0].shape == (*x.shape[:2], 8)
    output, state = module(x)
    assert (state[0] if kind == "LSTM" else state).shape == (4, 0, 4)
    output.sum().backward()
    assert x.grad.shape == x.shape
    assert all(not p.grad.any() for p in module.parameters())


def test_comparisons_in_place_give_0_and_1() -> None:
    x = wg.tensor([1.0, -2.0, 3.0])
    assert x.clone().gt_(0).tolist() == [1, 0, 1]
    assert x.clone().eq_(wg.tensor([1.0, 2.0, 3.0])).tolist() == [1, 0, 1]
    assert x.clone().less_(0).tolist() == [0, 1, 0]
    assert x.clone().logical_not_().tolist() == [0, 0, 0]
    assert wg.tensor([3, 0]).logical_and_(wg.tensor([1, 1])).tolist() == [1, 0]
    y = x.requires_grad_() * 2
    y.ge_(0)
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_methods_that_change_a_tensor_itself() -> None:
    assert wg.tensor([math.nan, 1.0]).nan_to_num_(nan=2.0).tolist() == [2, 1]
    assert wg.ones(2, 2).addmm_(wg.ones(2, 3), wg.ones(3, 2), beta=2).tolist() == [[5, 5], [5, 5]]
    assert wg.zero_(wg.ones(2)).tolist() == [0, 0]
    assert wg.clamp_(wg.tensor([-3.0, 3.0]), -1, 1).tolist() == [-1, 1]
    x = wg.arange(6.0)
    view = x.view(2, 3)
    memory = x.data_ptr()
    assert (x.resize_(2, 2).tolist(), x.data_ptr()) == ([[0, 1], [2, 3]], memory)
    assert x.resize_(6).tolist() == [0, 1, 2, 3, 4, 5]
    assert x.resize_(3, 4).flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.data_ptr() != memory
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert wg.empty(0).resize_as_(view).shape == (2, 3)
    with pytest.raises(RuntimeError, match="not recorded"):
        wg.ones(2, requires_grad=True).resize_(3)


def test_argument_forms() -> None:
    x = wg.arange(3.0)
    assert x.broadcast_to(4, 2, 3).shape == x.broadcast_to((4, 2, 3)).shape == (4, 2, 3)
    assert wg.tensor(1.0).flip(0).item() == wg.tensor(1.0).flip(-1).item() == wg.tensor(1.0).flip(()).item() == 1
    with pytest.raises(IndexError):
        wg.tensor(1.0).flip(1)
    assert wg.multinomial(wg.tensor([0.0, 1.0, 0.0]), 2)[0] == 1  # samples of weight 0 come last
    with pytest.raises(RuntimeError, match="4 samples"):
        wg.multinomial(wg.ones(3), 4)
    with pytest.raises(RuntimeError, match="negative"):
        wg.normal(wg.zeros(2), -1.0)


def test_real_numbers_answer_as_complex_ones_would() -> None:
    x = wg.tensor([-1.0, 0.0, math.nan, 2.0])
    np.testing.assert_array_equal(wg.angle(x).numpy(), np.angle(x.numpy()))
    assert not x.is_complex()
    assert x.real is x
    assert x.conj() is x


def test_unravel_index() -> None:
    flat_indices = np.array([0, 5, 23])
    coordinates = wg.unravel_index(wg.tensor(flat_indices), (2, 3, 4))
    for actual, expected in zip(coordinates, np.unravel_index(flat_indices, (2, 3, 4)), strict=True):
        assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("points", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett"])
def test_windows(name: str, points: int) -> None:
    function, reference = getattr(wg, f"{name}_window"), getattr(np, "hanning" if name == "hann" else name)
    symmetric = function(points, periodic=False, dtype=wg.float64).numpy()
    np.testing.assert_allclose(symmetric, reference(points), atol=1e-15)
    if points > 1:
        np.testing.assert_allclose(function(points, dtype=wg.float64).numpy(), reference(points + 1)[:-1], atol=1e-15)
    assert function(points).dtype is wg.float32
    with pytest.raises(TypeError):
        function(4, dtype=wg.int64)


def test_queries_about_missing_devices_and_services() -> None:
    """Asking for a missing device or service gives an answer, not an AttributeError."""
    assert not any(m.is_available() for m in (wg.mps, wg.xpu))
    assert not wg.distributed.is_initialized()
    assert not wg.compiler.is_compiling()
    assert wg.accelerator.is_available() == (wg.accelerator.current_accelerator() is not None)
    if not wg.cuda.is_available():
        assert (wg.cuda.memory_allocated(), wg.cuda.max_memory_reserved(), wg.cuda.is_initialized()) == (0, 0, False)
    module = wg.nn.Linear(2, 2)
    assert wg.compile(module) is module
    assert wg.compile(mode="max-autotune")(module.forward)(wg.ones(1, 2)).shape == (1, 2)
    with pytest.raises(TypeError, match="compile"):
        wg.compile(3)
    assert not wg.jit.is_scripting()
    assert not wg.jit.is_tracing()
    assert wg.jit.script(module) is module
    for decorate in (wg.jit.script, wg.jit.ignore, wg.jit.ignore(drop=True), wg.jit.export, wg.jit.unused):
        assert decorate(_double) is _double
    with pytest.raises(TypeError, match=r"jit\.script"):
        wg.jit.script(3)


def test_trace_calls_the_original() -> None:
    calls = []

    def add(x: Any, others: Any) -> Any:
        calls.append(x)
        return {"sum": x + others["y"]}

    traced = wg.jit.trace(add, (wg.ones(2), {"y": wg.ones(2)}))
    assert (len(calls), traced(wg.ones(3), {"y": wg.ones(1)})["sum"].tolist(), len(calls)) == (1, [2.0] * 3, 2)
    model = wg.nn.Sequential(wg.nn.Linear(2, 3), wg.nn.Dropout(0.5))
    traced = wg.jit.trace(model, example_kwarg_inputs={"input": wg.ones(1, 2)})
    assert isinstance(traced, wg.nn.Module)
    assert repr(traced).startswith("Sequential(\n  original_name=Sequential")
    assert list(traced.state_dict()) == list(model.state_dict())
    assert list(traced.parameters()) == list(model.parameters())
    assert traced.eval().training is model.training is model[1].training is False
    x = wg.ones(5, 2)
    assert wg.equal(traced(x), model(x))
    assert traced.append == model.append
    with pytest.raises(AttributeError, match="other"):
        _ = traced.other
    with pytest.raises(NotImplementedError, match="state_dict"):
        traced.save("model.pt")
    for arguments in ((3, wg.ones(1)), (model,), (model, 5), (model, "x"), (model, [3]), (lambda x: 3, wg.ones(1))):
        with pytest.raises(RuntimeError, match=r"jit\.trace"):
            wg.jit.trace(*arguments)


def _double(x: Any) -> Any:
    return x * 2


def test_schedulers_reject_parameter_groups_added_later() -> None:
    a, b = (wg.ones(1, requires_grad=True) for _ in range(2))
    optimizer = wg.optim.SGD([a], lr=0.1)
    schedule = wg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
    optimizer.add_param_group({"params": [b]})
    a.grad = b.grad = wg.ones(1)
    optimizer.step()
    with pytest.raises(ValueError, match="1 groups of parameters, and the optimizer has 2"):
        schedule.step()


def test_import_paths_of_layers() -> None:
    from weftgrad.nn.modules.batchnorm import _BatchNorm
    from weftgrad.nn.modules.conv import _ConvNd
    from weftgrad.nn.modules.utils import _pair

    assert isinstance(wg.nn.BatchNorm2d(1), _BatchNorm)
    assert isinstance(wg.nn.Conv2d(1, 1, 1), _ConvNd)
    assert (_pair(3), _pair([1, 2])) == ((3, 3), (1, 2))
    modules = wg.nn.modules
    assert isinstance(wg.nn.MSELoss(), modules.loss._Loss)
    for path in modules._SUBMODULES:
        listed = getattr(modules, path)
        assert all(hasattr(listed, name) for name in listed.__all__), path


def test_type_takes_class_names() -> None:
    x = wg.ones(2, device="cpu")
    assert (x.type(), x.long().type()) == ("weftgrad.FloatTensor", "weftgrad.LongTensor")
    for dtype in (wg.float64, wg.DoubleTensor, "torch.DoubleTensor", "weftgrad.DoubleTensor", "float64"):
        assert x.type(dtype).dtype is wg.float64
    with pytest.raises(TypeError, match="no such"):
        x.type("no such")


def test_printed_lines_are_as_wide_as_in_pytorch() -> None:
    """The expected lines were recorded from torch 2.13 with default print options."""
    lines = str((wg.arange(40.0) * 0.5).reshape(2, 20)).splitlines()
    assert lines[0] == "tensor([[ 0.0000,  0.5000,  1.0000,  1.5000,  2.0000,  2.5000,  3.0000,  3.5000,"
    assert [len(line) for line in lines] == [80, 80, 45, 80, 80, 46]
    assert str(wg.finfo(wg.float16)) == (
        "finfo(resolution=0.001, min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, "
        "tiny=6.10352e-05, dtype=float16)"
    )
    assert str(wg.iinfo(wg.int8)) == "iinfo(min=-128, max=127, dtype=int8)"


def test_errors_are_the_classes_that_programs_catch() -> None:
    """Each call raises the builtin class that PyTorch raises."""
    x = wg.arange(6.0).reshape(2, 3)
    expected: list[tuple[type, Callable[[], Any]]] = [
        (IndexError, lambda: wg.empty(0, 3).max(0)), (IndexError, lambda: wg.empty(0).argmax()),
        (RuntimeError, lambda: wg.arange(0, 5, 0)), (RuntimeError, lambda: wg.randint(3, 1, (2,))),
        (RuntimeError, lambda: wg.div(x, 2, rounding_mode="up")), (RuntimeError, lambda: x.clamp()),
        (RuntimeError, lambda: wg.zeros(2).uniform_(2, 1)), (RuntimeError, lambda: wg.multinomial(wg.zeros(2), 1)),
        (TypeError, lambda: x.__delitem__(0)),
    ]  # fmt: skip
    for builtin, call in expected:
        with pytest.raises(builtin):
            call()


def test_out_that_is_an_operand_without_elements() -> None:
    wg.full((64,), 7.0)  # freed memory then holds 7, not 0
    x = wg.zeros(0)
    assert wg.sum(x, 0, out=x).item() == 0
    rows = wg.zeros(0, 3)
    assert wg.sum(rows, 0, out=rows).tolist() == [0, 0, 0]


def test_autograd_of_resized_tensors() -> None:
    """Backward refuses a saved tensor that was resized. A view that outgrew its base's memory is no view any more."""
    b, w = wg.arange(6.0), wg.ones(6, requires_grad=True)
    y = b * w
    b.resize_(1)
    with pytest.raises(RuntimeError, match="modified"):
        y.sum().backward()
    factor = wg.tensor(2.0, requires_grad=True)
    for size, recorded in ((6, True), (9, False)):
        base = wg.arange(6.0)
        view = base.view(2, 3)
        view.resize_(size).fill_(1.0)
        view.mul_(factor)
        assert (view.requires_grad, base.requires_grad) == (True, recorded), size
    base = wg.arange(6.0)
    view = base[:2]
    base.resize_(20)
    view.mul_(factor)
    assert (view.requires_grad, base.requires_grad) == (True, False)
    assert wg.arange(6.0).view(2, 3).t().resize_(3, 2).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_quotients_can_be_overwritten_before_backward() -> None:
    for write in (lambda y: y.zero_(), lambda y: y.add_(1), lambda y: y.mul_(2)):
        z = wg.tensor([1.0, 2.0], requires_grad=True)
        y = 1 / z
        write(y)
        (y * 3).sum().backward()
        assert z.grad is not None


def test_fill_with_a_tensor_that_requires_grad() -> None:
    x, a = wg.ones(3, requires_grad=True), wg.tensor(3.0, requires_grad=True)
    y = x * 2
    y.fill_(a)
    (y * y).sum().backward()
    assert (a.grad.item(), x.grad.tolist()) == (18, [0, 0, 0])


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda y: y.zero_(), [0, 0]), (lambda y: y.mul_(3), [12, 12]), (lambda y: y.copy_(wg.ones(2)), [2, 2]),
        (lambda y: y.__setitem__(0, 5.0), [10, 4]),
    ],
)  # fmt: skip
def test_retained_gradients_belong_to_the_current_value(write: Any, expected: list[float]) -> None:
    y = wg.ones(2, requires_grad=True) * 2
    y.retain_grad()
    write(y)
    (y * y).sum().backward()
    assert y.grad.tolist() == expected


def test_in_place_ops_of_several_kernels_have_gradients() -> None:
    """d/dx log(x / (1 - x)) = 1 / (x (1 - x))."""
    x = wg.tensor([0.2, 0.5], requires_grad=True, dtype=wg.float64)
    (x * 1).logit_(0.1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [6.25, 4.0])


def test_nan_to_num_does_not_replace_its_own_replacements() -> None:
    x = wg.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert wg.nan_to_num(x, nan=math.inf, posinf=-math.inf, neginf=5.0).tolist() == [math.inf, -math.inf, 5, 1]


def test_keyword_arguments() -> None:
    x = wg.arange(3.0)
    assert wg.broadcast_to(x, size=(2, 3)).shape == x.broadcast_to(size=(2, 3)).shape == (2, 3)
    assert wg.flip(x, dims=(0,)).tolist() == x.flip(dims=[0]).tolist() == [2, 1, 0]
    flat_indices = wg.tensor([200], dtype=wg.uint8)
    coordinates = wg.unravel_index(flat_indices, (2, 300))
    assert [(f.item(), f.dtype) for f in coordinates] == [(0, wg.int64), (200, wg.int64)]


def test_sinc_of_large_numbers() -> None:
    """sinc is exactly 0 at nonzero integers n, where its gradient is (-1)^n / n."""
    x = wg.tensor([3.4e38, 1e8, 4097.0, 4096.25, 0.0], requires_grad=True)
    output = wg.sinc(x)
    expected = [0, 0, 0, math.sin(math.pi / 4) / (math.pi * 4096.25), 1]
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-6, atol=1e-11)
    output.sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[[1, 2, 4]], [1e-8, -1 / 4097, 0], rtol=1e-6)


def test_calls_that_return_the_tensor_itself_or_a_view() -> None:
    x = wg.arange(3.0)
    assert +x is x
    assert x.flatten() is x
    assert x.t() is not x
    assert x.t()._base is x
    assert reversed(x).tolist() == [2, 1, 0]
    assert wg.t(wg.zeros(2, 3)).shape == (3, 2)
    assert wg.tensor(1.0).t().shape == ()
    with pytest.raises(RuntimeError, match="no sign"):
        +wg.tensor([True])
