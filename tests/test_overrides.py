"""`__torch_function__`: classes that take over calls. The expectations are what PyTorch 2.13 does."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from typing import ClassVar

import numpy as np
import pytest

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.overrides import (
    get_ignored_functions,
    get_overridable_functions,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    is_tensor_like,
    is_tensor_method_or_property,
    resolve_name,
    wrap_torch_function,
)
from weftgrad.runtime.errors import UnhandledFunction
from weftgrad.runtime.overriding import Disabled, disabled_torch_function

cat_before_any_class = wg.cat


class Logging(wg.Tensor):
    calls: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, types, args, kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


class Plain(wg.Tensor):
    """Inherits Tensor's `__torch_function__`."""


class Scalar:
    """The class of PyTorch's documentation: N times N, with one value on the diagonal."""

    handlers: ClassVar[dict] = {}

    def __init__(self, size, value):
        self.size, self.value = size, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in cls.handlers or not all(issubclass(t, (wg.Tensor, Scalar)) for t in types):
            return NotImplemented
        return cls.handlers[func](*args, **(kwargs or {}))

    def tensor(self):
        return self.value * wg.eye(self.size)


def implements(function):
    def register(handler):
        Scalar.handlers[function] = handler
        return handler

    return register


def as_tensor(x):
    return x.tensor() if isinstance(x, Scalar) else x


@implements(wg.mean)
def mean(input):
    return float(input.value) / input.size


@implements(wg.add)
def add(input, other, *, alpha=1):
    if isinstance(input, Scalar) and isinstance(other, Scalar):
        return Scalar(input.size, input.value + alpha * other.value)
    return as_tensor(input) + alpha * as_tensor(other)


@implements(wg.stack)
def stack(tensors, dim=0):
    return wg.stack([as_tensor(t) for t in tensors], dim)


@pytest.fixture
def logged():
    Logging.calls = []
    return wg.tensor([1.0, 2.0, 3.0]).as_subclass(Logging)


def test_methods_functions_and_operators_pass_function_and_arguments(logged):
    plain = wg.ones(3)
    weight = wg.ones(2, 3)
    results = [
        (logged + 1, wg.add, (logged, 1), {}),
        (1 + logged, wg.add, (1, logged), {}),
        (plain - logged, wg.sub, (plain, logged), {}),
        (2 - logged, wg.sub, (2, logged), {}),
        (plain.add(logged), wg.Tensor.add, (plain, logged), {}),
        (wg.exp(logged), wg.exp, (logged,), {}),
        (logged.exp(), wg.Tensor.exp, (logged,), {}),
        (logged.sum(0), wg.Tensor.sum, (logged, 0), {}),
        (wg.sum(logged, keepdim=True), wg.sum, (logged,), {"keepdim": True}),
        (wg.sum(logged, axis=0), wg.sum, (logged, 0), {}),
        (F.linear(logged, weight), F.linear, (logged, weight), {}),
        (F.softmax(logged, dim=0), F.softmax, (logged, 0), {}),
        (wg.special.expit(logged), wg.special.expit, (logged,), {}),
        (wg.linalg.norm(logged), wg.linalg.norm, (logged,), {}),
        (logged[0], wg.Tensor.__getitem__, (logged, 0), {}),
        (-logged, wg.neg, (logged,), {}),
        (logged.reshape(3, 1), wg.Tensor.reshape, (logged, 3, 1), {}),
        (wg.std(logged, correction=0), wg.std, (logged,), {"correction": 0}),
        (wg.where(plain > 0, plain, logged), wg.where, None, {}),
        (logged @ logged, wg.Tensor.__matmul__, (logged, logged), {}),
    ]
    assert len(Logging.calls) == len(results)
    for (result, function, args, kwargs), (func, types, got_args, got_kwargs) in zip(
        results, Logging.calls, strict=True
    ):
        assert func == function, (func, function)
        assert types == (Logging,)
        assert type(result) is Logging, function
        if args is not None:
            assert len(got_args) == len(args), function
            assert all(a is b or a == b for a, b in zip(got_args, args, strict=True)), function
        assert got_kwargs == kwargs, function


def test_values_and_gradients_are_those_of_plain_tensors(logged):
    x = wg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with Disabled():
        y = x.as_subclass(Logging)
    (F.linear(y, wg.ones(1, 3)) * y.exp().sum()).sum().backward()
    e = np.exp([1.0, 2.0, 3.0])
    np.testing.assert_allclose(x.grad.numpy(), e.sum() + 6 * e, rtol=1e-6)
    leaf = logged.requires_grad_()
    assert leaf is logged
    (leaf * 2).sum().backward()
    assert type(leaf.grad) is wg.Tensor  # as in PyTorch, `grad` keeps the class of what backward computed
    assert leaf.grad.tolist() == [2, 2, 2]


def test_in_place_methods_return_the_tensor_itself(logged):
    same = logged.add_(1)
    assert same is logged
    logged += 1
    assert type(logged) is Logging
    logged[0] = 7
    assert [func for func, *_ in Logging.calls] == [wg.Tensor.add_, wg.Tensor.add_, wg.Tensor.__setitem__]
    out = wg.empty(3).as_subclass(Logging)
    assert wg.exp(wg.zeros(3), out=out) is out
    assert Logging.calls[-1][0] is wg.exp
    assert out.tolist() == [1, 1, 1]


def test_properties_ask_too(logged):
    assert logged.shape == (3,)
    assert logged.T is not None
    logged.requires_grad = True
    assert [func for func, *_ in Logging.calls] == [
        wg.Tensor.shape.__get__, wg.Tensor.T.__get__, wg.Tensor.requires_grad.__set__,
    ]  # fmt: skip
    assert is_tensor_method_or_property(wg.Tensor.shape.__get__)
    assert resolve_name(wg.Tensor.shape.__get__) == "weftgrad.Tensor.shape.__get__"


def test_tuples_and_named_tuples_are_converted(logged):
    values, indices = wg.max(logged, 0)
    assert type(values) is type(indices) is Logging
    result = wg.sort(logged)
    assert result.values.tolist() == [1, 2, 3]
    assert all(type(part) is Logging for part in wg.split(logged, 1))
    assert type(logged.tolist()) is list


def test_a_list_of_tensors_counts():
    Logging.calls = []
    result = cat_before_any_class([wg.zeros(1), wg.ones(1).as_subclass(Logging)])
    assert type(result) is Logging
    assert Logging.calls[0][0] is wg.cat


def test_subclasses_without_a_method_keep_their_class():
    x = wg.ones(2).as_subclass(Plain)
    assert type(x * 2) is type(x.sum()) is type(wg.stack([x, x])) is Plain
    assert repr(x * 2) == repr(wg.ones(2) * 2)
    parameter = wg.nn.Parameter(wg.ones(2))
    assert type(parameter * 2) is wg.Tensor
    assert type(parameter * x) is Plain


def test_a_disabled_class_takes_over_nothing():
    class Quiet(Logging):
        __torch_function__ = disabled_torch_function

    Logging.calls = []
    assert type(wg.ones(2).as_subclass(Quiet) + 1) is wg.Tensor
    assert not has_torch_function_unary(wg.ones(2).as_subclass(Quiet))
    assert Logging.calls == []


def test_disabled_context_belongs_to_its_thread(logged):
    seen = []
    with Disabled():
        assert type(logged + 1) is wg.Tensor
        assert not has_torch_function((logged,))
        thread = threading.Thread(target=lambda: seen.append(type(logged + 1)))
        thread.start()
        thread.join()
    assert seen == [Logging]
    assert has_torch_function((logged,))


def test_subclasses_are_asked_before_their_bases():
    order = []

    class Base(wg.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append((cls.__name__, tuple(t.__name__ for t in types)))
            return NotImplemented

    class Derived(Base):
        pass

    class Other(Base):
        pass

    a, b, c = (wg.ones(2).as_subclass(cls) for cls in (Base, Other, Derived))
    with pytest.raises(UnhandledFunction, match=r"stack.*Other.*Derived.*Base"):
        wg.stack([a, b, c])
    assert [name for name, _ in order] == ["Other", "Derived", "Base"]
    assert order[0][1] == ("Other", "Derived", "Base")
    with pytest.raises(TypeError, match="NotImplemented"):
        a + b


def test_an_object_of_any_class_takes_over():
    d = Scalar(5, 2)
    assert wg.mean(d) == 0.4
    assert wg.add(d, d).value == 4
    assert (wg.ones(5, 5) + d).tolist() == (wg.ones(5, 5) + 2 * wg.eye(5)).tolist()
    assert wg.add(wg.ones(5, 5), d, alpha=2)[0, 0].item() == 5
    assert wg.stack([d, wg.ones(5, 5)], 1).shape == (5, 2, 5)
    with pytest.raises(TypeError, match=r"mul.*Scalar"):
        wg.mul(wg.ones(5, 5), d)
    with pytest.raises(TypeError):
        wg.ones(5, 5) * d
    assert is_tensor_like(d)
    assert not is_tensor_like(3)


def test_python_asks_the_right_operand_after_not_implemented():
    class Right(Scalar):
        def __rmul__(self, other):
            return "mine"

    assert wg.ones(5, 5) * Right(5, 1) == "mine"


def test_functions_of_users_take_part(logged):
    def double(x, factor=2):
        if has_torch_function_unary(x):
            return handle_torch_function(double, (x,), x, factor=factor)
        return x * factor

    result = double(logged, 3)
    assert Logging.calls[0][0] is double
    assert Logging.calls[0][3] == {"factor": 3}
    assert result.tolist() == [3, 6, 9]

    @wrap_torch_function(lambda x: (x,))
    def triple(x):
        return x * 3

    assert type(triple(logged)) is Logging
    assert Logging.calls[-1][0] is triple
    assert triple(wg.ones(1)).item() == 3


def test_ops_of_users_take_part(logged):
    ops = wg.ops.load('[{op: "twice_and_one(input)", kind: pointwise, dtypes: float, out: input * 2 + 1}]')
    assert type(ops.twice_and_one(logged)) is Logging
    assert Logging.calls[0][0] is ops.twice_and_one


def test_modules_and_autograd_reach_the_class(logged):
    layer = wg.nn.Linear(3, 2)
    assert type(layer(logged)) is Logging
    assert Logging.calls[0][0] is F.linear
    logged.requires_grad_()
    Logging.calls = []
    (gradient,) = wg.autograd.grad((logged * logged).sum(), logged)
    assert gradient.tolist() == [2, 4, 6]
    assert wg.autograd.grad in [func for func, *_ in Logging.calls]


def test_signatures_and_sources_stay(logged):
    wg.cat([logged, logged])  # its check has been written
    assert list(inspect.signature(wg.cat).parameters) == ["tensors", "dim", "out", "axis"]
    assert list(inspect.signature(wg.gather).parameters)[:3] == ["input", "dim", "index"]  # a decorator wraps it
    assert "resolve_axis_alias" in inspect.getsource(wg.cat)
    with pytest.raises(TypeError, match="tensors"):
        wg.cat()
    assert wg.cat([wg.ones(1, 1), wg.ones(1, 1)], axis=1).tolist() == [[1, 1]]
    with pytest.raises(TypeError, match="cat"):
        wg.cat([wg.ones(1)], nonsense=1)


def test_warnings_name_the_callers_line(logged):
    """The code of a check is no frame for `warnings.warn(stacklevel=...)`, neither in the first call nor later."""
    for _ in range(2):
        with pytest.warns(UserWarning, match="dropout2d") as record:
            F.dropout2d(wg.ones(2, 2), 0.5)
        assert record[0].filename == __file__
        with pytest.warns(UserWarning, match="implicit|softmin|dim") as record:
            F.softmin(wg.ones(2, 2))
        assert record[0].filename == __file__


def test_every_overridable_function_still_takes_plain_tensors():
    """Functions with `*rest`, keyword-only and closed-over names are rewritten correctly."""
    x = wg.arange(6.0).reshape(2, 3)
    assert x.permute(1, 0).shape == x.permute(dims=(1, 0)).shape == (3, 2)
    assert x.view(-1).shape == x.view(6).shape == (6,)
    assert x.gather(1, wg.zeros(2, 1, dtype=wg.int64)).tolist() == [[0], [3]]
    assert x.index_select(dim=0, index=wg.tensor([1])).tolist() == [[3, 4, 5]]
    assert wg.where(x > 2, x, 0).sum().item() == 12
    assert x.clone().squeeze_().shape == (2, 3)
    assert x.expand(2, 2, 3).shape == (2, 2, 3)
    assert wg.einsum("ij->ji", x).shape == (3, 2)
    assert wg.broadcast_tensors(x, wg.ones(3))[1].shape == (2, 3)
    assert x.to(wg.float64).dtype == wg.float64
    functions = {f for fs in get_overridable_functions().values() for f in fs}
    assert len(functions) > 700
    assert not functions & get_ignored_functions()
    assert {wg.cat, wg.add, wg.Tensor.__getitem__, F.linear, wg.special.expit, wg.zeros_like} <= functions
    assert {wg.zeros, wg.tensor, wg.is_tensor, wg.no_grad} & functions == set()


_PROGRAM = """
import sys
import weftgrad as wg
from weftgrad.runtime import overriding
before = [f.__code__ for f in (wg.cat, wg.add, wg.Tensor.__getitem__)]
x = wg.ones(3)
assert (wg.add(x, x) + x).tolist() == [3, 3, 3] and not overriding.classes
assert "weftgrad.overrides" not in sys.modules
assert before == [f.__code__ for f in (wg.cat, wg.add, wg.Tensor.__getitem__)]
assert not hasattr(wg.cat, "__wrapped__")

class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__

try:
    wg.stack([Duck()])
except TypeError as error:
    assert "import weftgrad.overrides" in str(error), error
else:
    raise AssertionError
assert wg.exp(Duck()) == "exp" and x * Duck() == "mul" and x.add(Duck()) == "add"
assert wg.exp(x, out=Duck()) == "exp"
assert wg.stack([Duck()]) == "stack" and wg.reshape(Duck(), (1,)) == "reshape"  # the first call started it
"""


@pytest.mark.parametrize("native", ["1", "0"])
def test_programs_without_such_a_class_run_unchanged_functions(native):
    environment = os.environ | {"WEFTGRAD_NATIVE": native}
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, env=environment)


def test_the_same_without_c():
    """The Python path asks the same arguments."""
    program = """
import weftgrad as wg
calls = []
class Logging(wg.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)
x = wg.ones(3).as_subclass(Logging)
y = wg.ones(3)
assert type(x + 1) is type(y - x) is type(wg.exp(x)) is type(wg.cat([y, x])) is type(x.mul_(2)) is Logging
assert calls == ["add", "sub", "exp", "cat", "mul_"], calls
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"WEFTGRAD_NATIVE": "0"})


def test_names_of_torch():
    program = """
import weftgrad.torch_compat
import torch
from torch.overrides import (get_ignored_functions, get_overridable_functions, handle_torch_function,
    has_torch_function, is_tensor_like, resolve_name, wrap_torch_function)

class Picture(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            assert not torch._C._is_torch_function_enabled()
            return func.__name__, type(func(*args, **(kwargs or {}))) is torch.Tensor

x = torch.ones(2).as_subclass(Picture)
assert torch.exp(x) == ("exp", True) and has_torch_function((x,)) and not has_torch_function((torch.ones(2),))

class Quiet(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

assert type(torch.ones(2).as_subclass(Quiet) * 2) is torch.Tensor
assert len(torch.overrides._get_overloaded_args([x, x, torch.ones(1)])) == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True)
