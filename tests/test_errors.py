"""Check the errors of wrong calls: the project's class, the builtin class, and the words of the message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_checks import raises, tensor

import weftgrad as wg
from weftgrad.runtime import errors

# Shapes, dtypes, devices


def test_shapes_that_do_not_broadcast() -> None:
    with raises(errors.ShapeError, ValueError, "add", "float32[2, 3]", "float32[4]", "equal or 1"):
        tensor(2, 3) + tensor(4)
    with raises(errors.ShapeError, RuntimeError, "mm", "[2, 3]", "[4, 5]"):
        wg.mm(tensor(2, 3), tensor(4, 5))
    with raises(errors.ShapeError, ValueError, "view", "[5]", "6"):
        tensor(2, 3).view(5)
    with raises(errors.ShapeError, ValueError, "expand", "[2, 3]", "[2, 4]"):
        tensor(2, 3).expand(2, 4)
    with raises(errors.ShapeError, ValueError, "strides", ".reshape()"):
        tensor(2, 3).T.view(6)
    with raises(errors.IndexOutOfRange, IndexError, "sum", "float32[2, 3]", "2"):
        tensor(2, 3).sum(2)
    with raises(errors.ShapeError, ValueError, "item", "[2]"):
        tensor(2).item()
    with raises(errors.ShapeError, ValueError, "ambiguous", ".any()"):
        bool(tensor(2))
    with raises(errors.ShapeError, ValueError, "amax", "nothing to reduce"):
        wg.amax(tensor(0, 3), dim=0)


def test_dtypes_that_an_op_does_not_take() -> None:
    with raises(errors.DTypeError, TypeError, "bitwise_and", "float32[2]", ".to()"):
        tensor(2) & tensor(2)
    with raises(errors.DTypeError, TypeError, "lerp", "int64", "float"):
        wg.lerp(tensor(2, dtype=wg.int64), tensor(2, dtype=wg.int64), 1)
    with raises(errors.DTypeError, TypeError, "neg", "bool"):
        -tensor(2, dtype=wg.bool)
    with raises(errors.DTypeError, TypeError, "complex64"):
        wg.tensor(np.zeros(2, np.complex64))
    with raises(errors.DTypeError, TypeError, "flot32", "float32"):
        wg.zeros(2, dtype="flot32")


def test_results_that_do_not_fit_out() -> None:
    integers = tensor(3, dtype=wg.int64)
    with raises(errors.DTypeError, TypeError, "add", "int64", "float32"):
        integers.add_(1.5)
    with raises(errors.DTypeError, TypeError, "int64", "float32"):
        wg.add(tensor(3), tensor(3), out=integers)
    with raises(errors.ShapeError, ValueError, "add", "[3]", "[4]"):
        wg.add(tensor(3), tensor(3), out=tensor(4))
    with raises(errors.ShapeError, ValueError, "add", "[2, 3]", "[3]"):
        tensor(3).add_(tensor(2, 3))


def test_arguments_that_are_no_tensors() -> None:
    with raises(errors.ArgumentError, TypeError, "sin", "str", "tensor()"):
        wg.sin("1")
    with raises(errors.ArgumentError, ValueError, "tensor"):
        wg.tensor([[1, 2], [3]])
    with raises(errors.ArgumentError, TypeError, "masked_fill", "input must be a tensor"):
        wg.masked_fill(1.0, tensor(2, dtype=wg.bool), tensor(2))
    with pytest.raises(TypeError):
        tensor(2) + "1"


def test_devices() -> None:
    wg.set_default_device(device="cpu")
    assert str(wg.ones(1).device) == "cpu"
    wg.set_default_device(None)
    with raises(errors.UnknownDevice, ValueError, "gpu", "opencl:<n>"):
        wg.zeros(2, device="gpu")
    with raises(errors.UnknownDevice, ValueError, "opencl:99", "does not exist"):
        wg.zeros(2, device="opencl:99")
    other_device = wg.testing.synthetic_device(905, "")
    with raises(errors.DeviceError, RuntimeError, "mul", "cpu", "opencl:905", ".to(device)"):
        tensor(2) * wg.ones(2, device=other_device)
    with raises(errors.DeviceError, RuntimeError, "opencl:905", ".cpu()"):
        wg.ones(2, device=other_device).numpy()
    without_fp64 = wg.testing.synthetic_device(906, "style=gpu,lanes=4,fp64=0")
    with raises(errors.DTypeError, TypeError, "sin", "float64", "float32"):
        wg.sin(wg.tensor([1.0], dtype=wg.float64, device=without_fp64))


# Targets that are not classes


# PoCL needs ten seconds to compile these kernels for `cross_entropy`; those for `nll_loss` have the same checks.
@pytest.mark.parametrize(
    ("function", "device_name"),
    [
        ("nll_loss", "cpu"), ("nll_loss", "opencl:908"), ("cross_entropy", "cpu"),
        pytest.param("cross_entropy", "opencl:908", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_weighted", [False, True])
def test_targets_that_are_no_classes(function: str, is_weighted: bool, device_name: str) -> None:
    device = wg.device("cpu") if device_name == "cpu" else wg.testing.synthetic_device(908, "")
    logits = wg.zeros(4, 5, device=device)

    def loss(*args: Any, **options: Any) -> Any:
        result = getattr(wg.nn.functional, function)(*args, **options)
        wg.synchronize(device)  # a device that checks the targets itself reports them here
        return result

    weight = wg.ones(5, device=device) if is_weighted else None

    def target(*values: int, dtype: Any = wg.int64) -> Any:
        return wg.tensor(values, dtype=dtype, device=device)

    for bad_target, values in ((7, (1, 7, 0, 6)), (-1, (1, 2, -1, 0)), (5, (-100, 5, 0, 0))):
        with raises(
            errors.IndexOutOfRange, IndexError, function, f"target {bad_target} ", "5 classes", "0 to 4", "ignore"
        ):
            loss(logits, target(*values), weight)
        with raises(errors.IndexOutOfRange, IndexError, f"target {bad_target} "):
            loss(logits, target(*values, dtype=wg.int32), weight, reduction="none")
    with raises(errors.IndexOutOfRange, IndexError, "target -100 "):
        loss(logits, target(1, -100, 0, 0), weight, ignore_index=3)
    with raises(errors.IndexOutOfRange, IndexError, "target 200 "):
        loss(logits, target(1, 200, 0, 0, dtype=wg.uint8), weight)
    with raises(errors.IndexOutOfRange, IndexError, "target 5 "):
        loss(wg.zeros(2, 5, 3, device=device), wg.full((2, 3), 5, device=device), weight)
    expected = np.log(5) if function == "cross_entropy" else 0.0
    for ignored, values in ((-100, (1, -100, 0, 4)), (-1, (1, -1, -1, 4)), (9, (1, 9, 0, 4)), (3, (3, 3, 0, 4))):
        result = loss(logits, target(*values), weight, ignore_index=ignored)
        np.testing.assert_allclose(result.item(), expected, rtol=1e-6)
    for dtype in (wg.uint8, wg.int16, wg.int32):
        np.testing.assert_allclose(loss(logits, target(1, 2, 0, 4, dtype=dtype), weight).item(), expected, rtol=1e-6)
    assert np.isnan(loss(wg.zeros(0, 5, device=device), wg.zeros(0, dtype=wg.int64, device=device), weight).item())


# Typical mistakes of new users. Each raises the builtin class that PyTorch 2.13 was seen to raise.

nn, F, optim = wg.nn, wg.nn.functional, wg.optim
ARGUMENT, INDEX, SHAPE, DTYPE = errors.ArgumentError, errors.IndexOutOfRange, errors.ShapeError, errors.DTypeError

ODD_ARGUMENT_CASES: dict[str, tuple[Any, type[Exception], type[Exception], str]] = {
    # data and factories
    "tensor of None": (lambda: wg.tensor(None), ARGUMENT, TypeError, "NoneType"),
    "tensor of None inside": (lambda: wg.tensor([1, None]), ARGUMENT, TypeError, "object"),
    "tensor of text": (lambda: wg.tensor("abc"), ARGUMENT, TypeError, "str"),
    "tensor of 2**63": (lambda: wg.tensor(2**63), ARGUMENT, ValueError, "int64"),
    "tensor of 2**70": (lambda: wg.tensor([2**70]), ARGUMENT, ValueError, "int64"),
    "tensor of 300 as uint8": (lambda: wg.tensor([1, 300], dtype=wg.uint8), ARGUMENT, ValueError, "0 to 255"),
    "tensor of -256 as uint8": (lambda: wg.tensor(-256, dtype=wg.uint8), ARGUMENT, ValueError, "0 to 255"),
    "tensor of nan as int64": (lambda: wg.tensor(float("nan"), dtype=wg.int64), ARGUMENT, ValueError, "nan"),
    "from_numpy of a list": (lambda: wg.from_numpy([1]), ARGUMENT, TypeError, "list"),
    "from_numpy of a reversed array": (lambda: wg.from_numpy(np.arange(4)[::-1]), ARGUMENT, ValueError, "negative"),
    "from_numpy of text": (lambda: wg.from_numpy(np.array(["a"])), DTYPE, TypeError, "not supported"),
    "zeros of -1": (lambda: wg.zeros(-1), SHAPE, RuntimeError, "-1"),
    "zeros of text": (lambda: wg.zeros("3"), ARGUMENT, TypeError, "'3'"),
    "zeros of 2.5": (lambda: wg.zeros(2.5), ARGUMENT, TypeError, "2.5"),
    "randn with a misspelled name": (lambda: wg.randn(2, dtpye=wg.float64), ARGUMENT, TypeError, "'dtpye'"),
    "ones with a generator": (lambda: wg.ones(2, generator=wg.Generator()), ARGUMENT, TypeError, "'generator'"),
    "empty with two sizes": (lambda: wg.empty(2, size=(3,)), ARGUMENT, TypeError, "'size'"),
    "empty that is sparse": (lambda: wg.empty(2, layout="sparse_coo"), ARGUMENT, ValueError, "dense"),
    "zeros_like of a list": (lambda: wg.zeros_like([1, 2]), ARGUMENT, TypeError, "list"),
    "randint with a misspelled name": (lambda: wg.randint(2, (2,), dtpye=1), ARGUMENT, TypeError, "'dtpye'"),
    "randint without a sequence": (lambda: wg.randint(3, 2), ARGUMENT, TypeError, "size is a sequence"),
    "randint with a list for high": (lambda: wg.randint([3], (2,)), ARGUMENT, TypeError, "high are ints"),
    "where with one operand": (lambda: wg.where(tensor(2) > 0, 1.0), ARGUMENT, TypeError, "both input and other"),
    "shapes of texts": (lambda: wg.zeros("2"), ARGUMENT, TypeError, "made of ints"),
    "views of fractions": (lambda: tensor(2).view(2.0), ARGUMENT, TypeError, "are ints"),
    "uniform_ with a misspelled name": (lambda: tensor(2).uniform_(form=1), ARGUMENT, TypeError, "'form'"),
    "zeros into another shape": (lambda: wg.zeros(2, out=tensor(3)), SHAPE, RuntimeError, "[3]"),
    "zeros into another dtype": (lambda: wg.zeros(2, dtype=wg.int8, out=tensor(2)), DTYPE, RuntimeError, "int8"),
    "arange without an end": (lambda: wg.arange(), ARGUMENT, TypeError, "end"),
    "asarray of a list without a copy": (lambda: wg.asarray([1], copy=False), ARGUMENT, ValueError, "copy"),
    "frombuffer of too little": (lambda: wg.frombuffer(b"abc", dtype=wg.int32), ARGUMENT, ValueError, "buffer"),
    "as_tensor of a list with a long tensor": (lambda: wg.as_tensor([tensor(2)]), ARGUMENT, TypeError, "stack()"),
    "full of None": (lambda: wg.full((2,), None), ARGUMENT, TypeError, "None"),
    "full of text": (lambda: wg.full((2,), "a"), ARGUMENT, TypeError, "'a'"),
    "full of an int's shape": (lambda: wg.full(2, 1), ARGUMENT, TypeError, "tuple"),
    "full of 300 as uint8": (lambda: wg.full((2,), 300, dtype=wg.uint8), ARGUMENT, ValueError, "uint8"),
    "fill_ with text": (lambda: tensor(2).fill_("a"), ARGUMENT, TypeError, "'a'"),
    "eye of -1": (lambda: wg.eye(-1), ARGUMENT, ValueError, "-1"),
    "eye of 2.5": (lambda: wg.eye(2.5), ARGUMENT, TypeError, "2.5"),
    "arange of text": (lambda: wg.arange("a"), ARGUMENT, TypeError, "'a'"),
    "arange of bool": (lambda: wg.arange(2, dtype=wg.bool), DTYPE, TypeError, "bool"),
    "arange in steps of 0": (lambda: wg.arange(0, 1, 0.25, dtype=wg.int64), ARGUMENT, ValueError, "step"),
    "arange beyond int64": (lambda: wg.arange(2**64, 2**64 + 2), ARGUMENT, ValueError, "int64"),
    "arange beyond memory": (lambda: wg.arange(1e20), SHAPE, RuntimeError, "64 bits"),
    "linspace of half a step": (lambda: wg.linspace(0, 1, 2.5), ARGUMENT, TypeError, "2.5"),
    "linspace of text": (lambda: wg.linspace("a", 1, 2), ARGUMENT, TypeError, "'a'"),
    "zeros beyond 64 bits": (lambda: wg.zeros(2**40, 2**40), SHAPE, RuntimeError, "64 bits"),
    "empty of one size beyond 64 bits": (lambda: wg.empty(0, 2**70), SHAPE, RuntimeError, "64 bits"),
    "expand beyond 64 bits": (lambda: tensor(1).expand(2**40, 2**40), SHAPE, RuntimeError, "64 bits"),
    "arange backwards": (lambda: wg.arange(5, 0), ARGUMENT, ValueError, "do not lead"),
    # arithmetic
    "a list plus a tensor": (lambda: wg.add([1, 2], tensor(2)), ARGUMENT, TypeError, "list"),
    "exp of None": (lambda: wg.exp(None), ARGUMENT, TypeError, "exp"),
    "exp into an int": (lambda: wg.exp(tensor(2), out=5), ARGUMENT, TypeError, "out must be a tensor"),
    "a number beyond the dtype": (lambda: tensor(2, dtype=wg.uint8).clamp(300), ARGUMENT, ValueError, "uint8"),
    "a number beyond int64": (lambda: tensor(2, dtype=wg.int64) + 2**64, ARGUMENT, ValueError, "int64"),
    "round to text": (lambda: wg.round(tensor(2), decimals="a"), ARGUMENT, TypeError, "decimals"),
    "result_type of text": (lambda: wg.result_type(1, "a"), ARGUMENT, TypeError, "str"),
    "is_signed of an int": (lambda: wg.is_signed(1), ARGUMENT, TypeError, "is_signed: takes tensors, not int"),
    "finfo of bool": (lambda: wg.finfo(wg.bool), DTYPE, TypeError, "a bool has no limits"),
    "iinfo of float32": (lambda: wg.iinfo(wg.float32), DTYPE, TypeError, "use finfo"),
    "max of two tensors along 0": (lambda: wg.max(tensor(2), 0, other=tensor(2)), ARGUMENT, TypeError, "pass one"),
    "min of three tensors": (lambda: wg.min(tensor(2), tensor(2), other=tensor(2)), ARGUMENT, TypeError, "pass one"),
    "equal to an int": (lambda: wg.equal(tensor(2), 1), ARGUMENT, TypeError, "equal"),
    # slices and masks
    "a slice from 1.0": (lambda: tensor(3)[1.0:], errors.IndexKindError, TypeError, "ints and None, not float 1.0"),
    "a slice in steps of 0": (lambda: tensor(3)[::0], SHAPE, ValueError, "must be positive, not 0"),
    "a slice in steps of -1": (lambda: tensor(2, 3)[:, ::-1], SHAPE, ValueError, "use flip()"),
    "a mask of 3 for 2 rows": (lambda: tensor(2, 3)[tensor(3) > 0], INDEX, IndexError, "dimensions of sizes [2]"),
    "narrow beyond the end": (lambda: tensor(3).narrow(0, 1, 3), SHAPE, RuntimeError, "exceed dimension 0 of size 3"),
    # dimensions
    "sum along text": (lambda: tensor(2, 3).sum(dim="a"), ARGUMENT, TypeError, "'a'"),
    "sum along 1.0": (lambda: tensor(2, 3).sum(dim=1.0), ARGUMENT, TypeError, "1.0"),
    "sum along True": (lambda: tensor(2, 3).sum(dim=True), ARGUMENT, TypeError, "True"),
    "sum along 0 twice": (lambda: tensor(2, 3).sum(dim=(0, 0)), SHAPE, RuntimeError, "twice"),
    "softmax along 3": (lambda: tensor(2).softmax(dim=3), INDEX, IndexError, "3"),
    "unsqueeze at text": (lambda: tensor(2).unsqueeze("a"), ARGUMENT, TypeError, "'a'"),
    "size of dimension 5": (lambda: tensor(2).size(5), INDEX, IndexError, "size"),
    "size of dimension text": (lambda: tensor(2).size("a"), ARGUMENT, TypeError, "'a'"),
    "stride of dimension 5": (lambda: tensor(2).stride(5), INDEX, IndexError, "stride"),
    "size of dimension 0 of a number": (lambda: tensor().size(0), INDEX, IndexError, "no dimensions"),
    "meshgrid of a matrix": (lambda: wg.meshgrid(tensor(2, 2), tensor(2)), SHAPE, RuntimeError, "[2, 2]"),
    "cat of a tensor": (lambda: wg.cat(tensor(3)), ARGUMENT, TypeError, "Tensor"),
    "cat of None": (lambda: wg.cat(None), ARGUMENT, TypeError, "NoneType"),
    "cat with an int": (lambda: wg.cat([tensor(2), 1]), ARGUMENT, TypeError, "int"),
    "stack of None": (lambda: wg.stack(None), ARGUMENT, TypeError, "NoneType"),
    # indexing
    "gather with a list": (lambda: wg.gather(tensor(2, 3), 1, [[1]]), ARGUMENT, TypeError, "gather"),
    "index_select with an int": (lambda: wg.index_select(tensor(2, 3), 0, 1), ARGUMENT, TypeError, "index_select"),
    "index_select with a matrix": (lambda: wg.index_select(tensor(2), 0, wg.tensor([[0]])), SHAPE, IndexError, "1]"),
    "index_add with a list": (lambda: tensor(3).index_add_(0, [0], tensor(1)), ARGUMENT, TypeError, "index_add"),
    "scatter with a list": (lambda: tensor(3).scatter_(0, [0], 1.0), ARGUMENT, TypeError, "scatter"),
    "take with a list": (lambda: wg.take(tensor(3), [0]), ARGUMENT, TypeError, "take"),
    "nonzero of an int": (lambda: wg.nonzero(5), ARGUMENT, TypeError, "nonzero"),
    "where with a list": (lambda: wg.where([True], 1, 2), ARGUMENT, TypeError, "where"),
    "masked_select with a list": (lambda: wg.masked_select(tensor(2), [True] * 2), ARGUMENT, TypeError, "masked"),
    "masked_fill of integers with infinity": (
        lambda: wg.arange(3).masked_fill(wg.ones(3, dtype=wg.bool), float("inf")),
        ARGUMENT,
        RuntimeError,
        "int64 has no",
    ),
    "a mask and a number beyond the dtype": (
        lambda: wg.arange(3).__setitem__(wg.ones(3, dtype=wg.bool), 1e30),
        ARGUMENT,
        RuntimeError,
        "does not fit int64",
    ),
    "pad integers with infinity": (
        lambda: F.pad(wg.arange(3), (1, 1), value=float("inf")),
        ARGUMENT,
        RuntimeError,
        "int64 has no",
    ),
    # shapes and statistics
    "reshape of a list": (lambda: wg.reshape([1, 2], (2, 1)), ARGUMENT, TypeError, "reshape"),
    "flatten of a list": (lambda: wg.flatten([[1, 2]]), ARGUMENT, TypeError, "flatten"),
    "unbind of a list": (lambda: wg.unbind([1, 2]), ARGUMENT, TypeError, "unbind"),
    "std of a list": (lambda: wg.std([1.0, 2.0]), ARGUMENT, TypeError, "std"),
    "numel of a list": (lambda: wg.numel([1, 2]), ARGUMENT, TypeError, "numel"),
    "is_floating_point of a number": (lambda: wg.is_floating_point(1.0), ARGUMENT, TypeError, "is_floating_point"),
    # nn
    "embedding of a list": (lambda: F.embedding([1], tensor(2, 2)), ARGUMENT, TypeError, "embedding"),
    "one_hot of a list": (lambda: F.one_hot([1], 2), ARGUMENT, TypeError, "one_hot"),
    "a layer of an array": (lambda: nn.Linear(3, 2)(np.ones(3)), ARGUMENT, TypeError, "ndarray"),
    "a layer of None": (lambda: nn.Linear(3, 2)(None), ARGUMENT, TypeError, "NoneType"),
    "a target that is a list": (lambda: F.cross_entropy(tensor(2, 3), [0, 1]), ARGUMENT, TypeError, "list"),
    "a target that is a number": (lambda: F.mse_loss(tensor(2), 1.0), ARGUMENT, TypeError, "mse_loss"),
    "layer_norm over None": (lambda: F.layer_norm(tensor(2, 3), None), ARGUMENT, TypeError, "None"),
    "batch_norm without statistics": (lambda: F.batch_norm(tensor(2, 3), None, None), ARGUMENT, ValueError, "running"),
    "a kernel of size 0": (lambda: nn.Conv2d(3, 4, 0), ARGUMENT, ValueError, "kernel_size"),
    "data that is a number": (lambda: setattr(tensor(2), "data", 5), ARGUMENT, TypeError, "data"),
    "a parameter of a list": (lambda: nn.Parameter([1.0]), ARGUMENT, TypeError, "list"),
    "gradients for an int": (lambda: wg.autograd.grad(tensor(2, grad=True).sum(), 5), ARGUMENT, TypeError, "int"),
    "gradients of an int": (lambda: wg.autograd.grad(5, tensor(2, grad=True)), ARGUMENT, TypeError, "int"),
}


@pytest.mark.parametrize("case", ODD_ARGUMENT_CASES)
def test_odd_arguments(case: str) -> None:
    function, project, builtin, word = ODD_ARGUMENT_CASES[case]
    with raises(project, builtin, word):
        function()


def test_odd_arguments_that_are_right() -> None:
    x = wg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="cpu")
    assert x.sum(np.int64(1)).tolist() == [6, 15]
    assert x.sum((np.int32(0), 1)).item() == 21
    assert wg.zeros(2, dtype=float).dtype is wg.float64  # Python's float is a double, while wg.float is float32
    assert wg.tensor(2.0).dtype is wg.float32
    assert wg.tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert wg.tensor(np.array([300, -1]), dtype=wg.uint8).tolist() == [44, 255]  # arrays wrap as in NumPy
    assert wg.full((2,), np.float32(2.5)).tolist() == [2.5, 2.5]
    assert wg.arange(np.int64(3)).dtype is wg.int64
    assert wg.arange(3, 3).shape == (0,)
    assert wg.arange(3, 0, -1).tolist() == [3, 2, 1]
    assert (x.size(-1), x.stride(0)) == (3, 3)
    assert wg.autograd.grad(x.requires_grad_().sum(), {"x": x}.values())[0].tolist() == [[1] * 3] * 2


# Without a driver, and after a fork


def test_the_tree_of_errors() -> None:
    for name in errors.__all__:
        error_class = getattr(errors, name)
        if isinstance(error_class, type):
            assert issubclass(error_class, errors.WeftgradError)


def test_a_dtype_without_a_kernel_is_not_implemented() -> None:
    functional = wg.nn.functional
    integers, booleans = tensor(1, 1, 4, 4, dtype=wg.int64), tensor(1, 1, 4, 4, dtype=wg.bool)
    calls: list[tuple[Any, str]] = [
        (lambda: functional.softmax(integers, 1), "softmax"),
        (lambda: functional.layer_norm(integers, (4,)), "layer_norm"),
        (lambda: functional.avg_pool2d(booleans, 2), "avg_pool2d"),
        (lambda: functional.adaptive_avg_pool2d(integers, 2), "adaptive_avg_pool2d"),
        (lambda: functional.conv2d(booleans, booleans), "convolution"),
        (lambda: functional.gelu(integers), "gelu"),
        (lambda: functional.elu(integers), "elu"),  # although its alpha is a float
        (lambda: functional.smooth_l1_loss(integers, integers), "smooth_l1"),
        (lambda: wg.lerp(integers, integers, 0.5), "lerp"),
        (lambda: booleans @ booleans, "bool"),
        (lambda: integers.normal_(), "normal_"),
    ]
    for call, word in calls:
        with raises(errors.UnsupportedDType, NotImplementedError, word):
            call()
    with raises(errors.UnsupportedDType, TypeError, "convert"):
        functional.softmax(integers, 1)


def test_none_for_an_operand_is_named():
    with pytest.raises(errors.ArgumentError, match="leaky_relu: negative_slope must be a number, not None"):
        wg.nn.functional.leaky_relu(wg.ones(2), None)
    with pytest.raises(errors.ArgumentError, match="add: other must be a tensor, not None"):
        wg.add(wg.ones(2), None)


def test_errors_of_planning_have_no_other_error_behind_them():
    with pytest.raises(errors.ShapeError) as raised:
        wg.ones(2, 3) + wg.ones(4)
    assert raised.value.__context__ is None


def test_sizes_that_a_product_cannot_match_are_named():
    with pytest.raises(errors.ShapeError, match="dimension -1 of weight has size 3, but input needs 4"):
        wg.nn.functional.linear(wg.ones(5, 4), wg.ones(2, 3))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("linear", lambda f: f.linear(wg.ones(5, 4), wg.ones(2, 3))),
        ("linear", lambda f: f.linear(wg.ones(5, 4), wg.ones(2, 3), wg.ones(2))),
        ("matmul", lambda f: wg.ones(3) @ wg.ones(4, 3)),
        ("matmul", lambda f: wg.ones(4, 3) @ wg.ones(4)),
        ("matmul", lambda f: wg.ones(2, 3, 4) @ wg.ones(2, 3, 4)),
    ],
)
def test_a_message_names_the_function_that_the_user_called(name, call):
    with pytest.raises(errors.ShapeError, match=rf"^{name}\("):
        call(wg.nn.functional)


def test_a_message_names_the_function_of_a_hidden_op():
    with pytest.raises(errors.UnsupportedDType, match=r"^gelu\(input int64\[2\]\)"):
        wg.nn.functional.gelu(wg.ones(2, dtype="int64"))
