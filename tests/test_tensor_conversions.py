"""Check conversions of tensors: numbers, arrays, constructors, dtypes and devices, and how tensors print."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from leaf_tensors import leaf

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.errors import ArgumentError

RNG = np.random.default_rng(0)


def test_a_number_formats_as_a_number():
    assert f"{wg.tensor(1.5):.3f} {wg.tensor(3):5d} {wg.tensor(True)}" == "1.500     3 True"
    assert f"{wg.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError):
        f"{wg.tensor([1, 2]):.2f}"


def test_older_constructors_take_sizes_or_data():
    tensors = (wg.Tensor(), wg.Tensor(4), wg.Tensor(2, 3), wg.Tensor(2, 3, 4), wg.Tensor(1, 2, 3, 4, 5))
    assert [tuple(t.shape) for t in tensors] == [
        (0,), (4,), (2, 3), (2, 3, 4), (1, 2, 3, 4, 5),
    ]  # fmt: skip
    assert wg.Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert wg.Tensor((1, 2)).dtype is wg.float32
    assert wg.Tensor(wg.Size([1, 2])).shape == (1, 2)
    data = wg.Tensor([3])
    assert wg.Tensor(data).data_ptr() == data.data_ptr()
    assert wg.nn.Parameter(wg.Tensor(2, 1)).requires_grad
    longs = wg.LongTensor([1, 2])
    assert longs.dtype is wg.int64
    assert [isinstance(longs, kind) for kind in (wg.LongTensor, wg.FloatTensor)] == [True, False]
    assert longs.type(wg.ByteTensor).dtype is longs.byte().dtype is wg.uint8
    assert (longs.char().dtype, longs.short().dtype) == (wg.int8, wg.int16)
    for wrong in (1.5, True, longs):
        with pytest.raises(TypeError):
            wg.Tensor(wrong)


def test_to_reads_positional_flags_and_rejects_what_it_cannot_use():
    x = wg.ones(2)
    assert x.to(wg.float32, False) is x.to(x) is x.to(None) is x
    for args in ((wg.float32, False, True), (x, False, True), (x.device, None, False, True)):
        result = x.to(*args)
        assert result is not x
        assert result.dtype is wg.float32
    for dtype in (np.float64, np.dtype("float64"), float):
        assert x.to(dtype).dtype is x.to(str(x.device), dtype).dtype is wg.float64
        assert nn.Linear(1, 1).to(dtype).weight.dtype is wg.float64
    wrong_args = ([1], 2.5, complex, np.complex64, object)
    for args in (*((arg,) for arg in wrong_args), (wg.int32, wg.int64), (x, wg.int32), (wg.int32, *[True] * 3)):
        with pytest.raises(TypeError):
            x.to(*args)
    with pytest.raises(ArgumentError, match="not \\[1\\]; write for example to"):
        x.to([1])
    for names in ({"dtype": wg.int64}, {"copy": True}):
        with pytest.raises(TypeError):
            x.to(wg.float32, False, True, **names)
    with pytest.raises(ArgumentError, match="no copy"):
        nn.Linear(1, 1).to(wg.float64, False, True)


def test_tensors_of_one_element_in_a_list_are_numbers():
    one = wg.tensor([1.0])
    assert wg.tensor([one, one[0], 2]).tolist() == [1.0, 1.0, 2.0]
    assert wg.tensor([[wg.ones(1, 1)], [3.0]]).tolist() == [[1.0], [3.0]]
    for name in ("float64", "float16", "bfloat16", "int32"):
        assert wg.tensor([one[0].to(getattr(wg, name))]).dtype.name == name
    assert wg.tensor([one.half(), 1.0]).dtype is wg.float32
    with pytest.raises(ValueError, match="stack"):
        wg.tensor([wg.ones(2), wg.ones(2)])


def test_a_gradient_has_the_shape_dtype_and_device_of_its_tensor():
    x = wg.ones(2, device="cpu", requires_grad=True)
    for wrong in (wg.ones(3, device="cpu"), x.detach().double(), x.detach().to("opencl:0")):
        with pytest.raises(RuntimeError, match="grad: "):
            x.grad = wrong
    x.grad = wg.ones(2, device="cpu")
    assert nn.Linear(1, 1).to(wg.float64).weight.grad is None


def test_sizes_join_to_sizes():
    size = wg.Size([1, 2])
    sums = (size + (3,), (0,) + size, size + size, size * 2, 2 * size, size[1:])
    assert [tuple(s) for s in sums] == [(1, 2, 3), (0, 1, 2), (1, 2, 1, 2), (1, 2, 1, 2), (1, 2, 1, 2), (2,)]
    assert all(type(s) is wg.Size for s in sums)
    with pytest.raises(TypeError):
        size + [3]


def test_type_as_moves_to_the_device_of_the_other_tensor():
    other = wg.ones(1, dtype=wg.float64, device="opencl:0")
    result = wg.ones(2, device="cpu").type_as(other)
    assert (result.dtype, result.device) == (wg.float64, other.device)


def test_repr_uses_one_number_of_digits():
    """As in PyTorch, integral values have no digits, others have four, and large ranges have exponents."""
    nan, inf = float("nan"), float("inf")
    for values, text in (
        ([1.0, nan, inf, -2.5], "tensor([ 1.0000,     nan,     inf, -2.5000])"),
        ([1.0, -2.0], "tensor([ 1., -2.])"),
        ([1e-8, 1.0], "tensor([1.0000e-08, 1.0000e+00])"),
        ([1.0, 2000.0], "tensor([1.0000e+00, 2.0000e+03])"),
        ([nan, 1.0], "tensor([nan, 1.])"),  # the width is that of the widest finite value
        ([0.0, -inf], "tensor([0., -inf])"),
        ([1e6], "tensor([1000000.])"),
        ([12345678.0, 2e8], "tensor([1.2346e+07, 2.0000e+08])"),
        ([0.0001], "tensor([1.0000e-04])"),  # as float32 it is less than 0.0001
        (-1e10, "tensor(-1.0000e+10)"),
        (2.5, "tensor(2.5000)"),
        ([], "tensor([])"),
    ):
        assert repr(wg.tensor(values, device="cpu")) == text
    for options, value, text in (
        ({"precision": 2, "sci_mode": False}, [1e-8, 2.0], "tensor([0.00, 2.00])"),
        ({"sci_mode": True}, [2.0], "tensor([2.00e+00])"),
        ({"profile": "short"}, [i / 4 for i in range(5)], "tensor([0.00, 0.25, 0.50, 0.75, 1.00])"),
        ({"threshold": 4, "edgeitems": 1}, [1e9, 0.5, 1e9, 1, 3], "tensor([1.0000e+09,  ..., 3.0000e+00])"),
        ({"profile": "full"}, 0.5, "tensor(0.5000)"),
        ({"profile": "default"}, [1e-8, 2.0], "tensor([1.0000e-08, 2.0000e+00])"),
    ):
        wg.set_printoptions(**options)
        assert repr(wg.tensor(value, device="cpu")) == text or options.get("edgeitems")
    with pytest.raises(ArgumentError, match="short"):
        wg.set_printoptions(profile="tiny")
    assert repr(wg.zeros(0, 3, device="cpu")) == "tensor([], size=(0, 3))"
    assert repr(wg.tensor(np.arange(2000), device="cpu")) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"


def test_backend_settings():
    import weftgrad.backends.cudnn as cudnn

    cudnn.benchmark = True  # has no effect, but may be set
    assert wg.backends.cudnn is cudnn
    assert not wg.backends.mps.is_available()
    old_precision = wg.get_float32_matmul_precision()
    try:
        for allowed, precision in ((True, "high"), (False, "highest")):
            wg.backends.cuda.matmul.allow_tf32 = allowed
            assert wg.get_float32_matmul_precision() == precision
            assert wg.backends.cuda.matmul.allow_tf32 is allowed
    finally:
        wg.set_float32_matmul_precision(old_precision)


def test_operators_take_arrays():
    x, array = leaf([1.0, 2.0]), np.array([3.0, 5.0])
    for actual, expected in ((x * array, [3, 10]), (array - x, [2, 3]), (array / x, [3, 2.5]), (x + array[0], [4, 5])):
        assert isinstance(actual, wg.Tensor)
        assert actual.tolist() == expected
    (x * array).sum().backward()
    assert x.grad.tolist() == array.tolist()


def test_numpy_scalars_are_accepted_as_numbers():
    """Functions, methods and operators accept NumPy scalars. As in PyTorch, tensors of them have their dtype."""
    x = wg.ones(3)
    for number in (np.float32(2), np.float64(2), np.int8(2), np.int64(2), np.float16(2)):
        assert wg.mul(x, number).tolist() == x.clone().mul_(number).tolist() == wg.mul(number, x).tolist() == [2] * 3
        assert wg.where(x > 0, x * 2, number).tolist() == x.clamp(min=number).tolist() == [2] * 3
        assert wg.tensor([number, number]).dtype is wg.tensor([[1.0, number]][0][1:]).dtype is wg.tensor(number).dtype
    assert wg.mul(x, np.bool_(True)).dtype is wg.float32
    assert repr(x > 0) == "tensor([True, True, True])"
    with pytest.raises(TypeError, match="dtpye"):
        x.to("cpu", dtpye=1)
    with pytest.raises(ArgumentError, match="not date"):
        wg.mul(x, np.datetime64("2020"))
    assert wg.tensor([1.0, np.float32(2)]).dtype is wg.float32
    assert wg.tensor([[1.0], [np.float64(2)]]).dtype is wg.tensor([np.ones(2), np.ones(2)]).dtype is wg.float64
    assert wg.tensor([np.float16(1), 2]).dtype is wg.float16


def test_sum_to_size_and_contains():
    x = wg.arange(12.0).view(3, 4)
    assert x.sum_to_size(4).tolist() == x.sum(0).tolist()
    assert x.sum_to_size((3, 1)).tolist() == x.sum(1, keepdim=True).tolist()
    assert x.sum_to_size(3, 4).tolist() == x.tolist()
    for wrong in (lambda: x.sum_to_size(3), lambda: x.sum_to_size(1, 3, 4), lambda: "a" in x, lambda: None in x):
        with pytest.raises(RuntimeError):
            wrong()
    assert 3 in x
    assert wg.tensor(3.0) in x
    assert np.float32(30) not in x


def test_view_as_another_dtype():
    x = wg.tensor([[1.0, -2.0], [0.5, 0.0]])
    bits = x.view(wg.int32)
    assert bits.tolist() == x.numpy().view(np.int32).tolist()
    bits[0, 0] = 0x40000000
    assert x[0, 0].item() == 2
    assert x.view(wg.uint8).tolist() == x.numpy().view(np.uint8).tolist()
    assert x.view(wg.uint8)[:, 4:].view(wg.float32).tolist() == [[-2], [0]]
    assert x.t().view(wg.int32).tolist() == x.t().contiguous().view(wg.int32).tolist()
    buffer = bytearray(b"\x80\x3f")
    assert wg.frombuffer(buffer, dtype=wg.bfloat16).tolist() == [1]
    assert wg.frombuffer(buffer, dtype=wg.bfloat16, requires_grad=True).requires_grad
    for wrong in (lambda: x.t().view(wg.int64), lambda: wg.ones(3).view(wg.float64), lambda: x.sum().view(wg.uint8),
                  lambda: x.requires_grad_().view(wg.int32)):  # fmt: skip
        with pytest.raises(RuntimeError, match="view"):
            wrong()


def test_arrays_that_are_not_writable_are_copied():
    array = np.frombuffer(b"\x01\x02", np.uint8)
    for make in (lambda: wg.from_numpy(array), lambda: wg.frombuffer(b"\x01\x02", dtype=wg.uint8)):
        with pytest.warns(UserWarning, match="not writable"):
            tensor = make()
        assert tensor.add_(1).tolist() == [2, 3]
    assert array.tolist() == [1, 2]
    memory = bytearray(8)
    shared = wg.frombuffer(memory, dtype=wg.int16, count=2, offset=2)
    shared.fill_(-1)
    wg.cpu.synchronize()
    assert list(memory) == [0, 0, 255, 255, 255, 255, 0, 0]
    zeros = np.zeros(2)
    wg.asarray(zeros, copy=False)[0] = 1
    wg.asarray(zeros, copy=True)[1] = 1
    wg.cpu.synchronize()
    assert zeros.tolist() == [1, 0]
    assert wg.asarray([1, 2], dtype=wg.float32).tolist() == [1, 2]


def test_copies_keep_attributes_set_on_tensors() -> None:
    x, p = wg.ones(2), nn.Parameter(wg.ones(2))
    for original in (x, p):
        original.tag = {"a": [1]}
        for duplicate in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            assert type(duplicate) is type(original)
            assert duplicate.tag == {"a": [1]}
            assert duplicate.tag is not original.tag
    assert not hasattr(x + 1, "tag")
    with pytest.raises(AttributeError, match="tag"):
        _ = wg.zeros(1).tag


def test_to_takes_dtypes_of_numpy_and_positional_flags() -> None:
    x = wg.ones(2)
    for dtype in (np.float64, np.dtype("float64"), float, wg.float64):
        assert x.to(dtype).dtype is wg.float64
        assert x.to("cpu", dtype).dtype is wg.float64
    assert x.to("cpu", "float64").dtype is wg.float64
    assert x.to(wg.float64, "cpu").dtype is wg.float64
    assert x.to("cpu", wg.float32, False, True) is not x
    assert x.to(wg.float32, False, True) is not x
    assert x.to("cpu", True) is x
    with pytest.raises(TypeError, match=r"takes a device, a dtype or a tensor, .* not \[1\]"):
        x.to([1])


def test_device_is_a_class() -> None:
    cpu = wg.device("cpu")
    assert isinstance(cpu, wg.device)
    assert wg.device(cpu) is cpu is wg.device(type="cpu")
    assert wg.device(type="cuda", index=1) is wg.device("cuda", 1) is wg.device("cuda:1")
    assert copy.deepcopy(cpu) is pickle.loads(pickle.dumps(cpu)) is cpu
    assert eval(f"wg.{wg.device('cuda:1')!r}") is wg.device("cuda:1")


def test_numbers_of_numpy_are_operands() -> None:
    x = wg.tensor([7.0, -7.0])
    assert wg.div(x, np.float32(2), rounding_mode="trunc").tolist() == [3, -3]
    assert wg.result_type(np.float32(1), wg.tensor([1])) is wg.float32
    assert x.add(np.float32(1), alpha=2).tolist() == [9, -5]
    assert wg.tril_indices(2, 2, dtype=None).dtype is wg.int64
