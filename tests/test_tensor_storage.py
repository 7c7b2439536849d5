"""A tensor's memory as an object (`untyped_storage`, `set_`), subclasses over it, and the graph behind a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.autograd.node import AccumulateGrad
from weftgrad.tensor_methods.storage_methods import UntypedStorage


def test_storages_are_equal_where_memory_is_shared() -> None:
    x = wg.arange(6, dtype=wg.int16, device="cpu")
    storage = x.untyped_storage()
    assert storage == x[2:].untyped_storage() == x.view(2, 3).untyped_storage()
    assert storage != x.clone().untyped_storage()
    assert len({storage, x[1:].untyped_storage()}) == 1
    assert (storage.nbytes(), len(storage), storage.device) == (12, 12, x.device)
    assert storage.data_ptr() == x.data_ptr() == x[1:].data_ptr() - 2
    assert storage.tolist() == list(np.arange(6, dtype=np.int16).tobytes())
    assert storage[2:4].tolist() == [1, 0]
    assert storage[2:4] != storage
    with pytest.raises(ValueError, match="takes slices, not int"):
        storage[0]  # type: ignore[index]


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "numbers.bin"
    values = np.arange(8, dtype=np.float32)
    path.write_bytes(values.tobytes())
    storage = UntypedStorage.from_file(path, nbytes=32)
    tensor = wg.asarray(storage[8:24], dtype=wg.uint8).view(wg.float32)
    np.testing.assert_array_equal(tensor.numpy(), values[2:6])
    tensor.zero_()
    np.testing.assert_array_equal(np.fromfile(path, np.float32), values)  # a private mapping


def test_set_takes_another_tensors_memory_or_a_layout_of_it() -> None:
    x, y = wg.zeros(2), wg.arange(6.0)
    assert x.set_(y) is x
    x[0] = 9
    assert (x.shape, y[0].item()) == ((6,), 9)
    x.set_(y.untyped_storage(), 1, (2, 2), (1, 2))
    np.testing.assert_array_equal(x.numpy(), [[1, 3], [2, 4]])
    x.set_(y.untyped_storage())
    assert x.shape == (6,)
    x.set_(y, 2, (3,), (1,))
    np.testing.assert_array_equal(x.numpy(), [2, 3, 4])
    assert x.set_().shape == (0,)


def test_set_refuses_what_does_not_fit() -> None:
    x = wg.zeros(2)
    with pytest.raises(RuntimeError, match=r"set_: size \[4\], stride \[2\], offset 0 leave a storage of 6 elements"):
        x.set_(wg.arange(6.0).untyped_storage(), 0, (4,), (2,))
    with pytest.raises(RuntimeError, match="set_: the source is int64, the tensor float32"):
        x.set_(wg.arange(2))
    with pytest.raises(RuntimeError, match="set_: the tensor has a history"):
        (wg.ones(2, requires_grad=True) * 2).set_(x)
    with pytest.raises(TypeError, match="set_: takes a tensor or an UntypedStorage, not int"):
        x.set_(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="set_: the source is on meta"):
        wg.zeros(2, device="cpu").set_(wg.zeros(2, device="meta"))


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16, wg.int64, wg.bool])
def test_apply_calls_a_function_for_each_element(dtype: wg.DType) -> None:
    large = 2**53 + 1 if dtype is wg.int64 else 1
    x = wg.tensor([[0, 1], [1, large]], dtype=dtype, device="cpu").T
    x.apply_(lambda value: value + 1 if dtype is not wg.bool else not value)
    expected = [[1, 2], [2, large + 1]] if dtype is not wg.bool else [[True, False], [False, False]]
    assert x.tolist() == expected
    assert x.dtype is dtype


def test_apply_has_no_derivative() -> None:
    with pytest.raises(RuntimeError, match="apply_: a Python function has no derivative"):
        wg.ones(2, device="cpu", requires_grad=True).apply_(abs)
    assert wg.ones(0, device="cpu").apply_(abs).shape == (0,)


@pytest.mark.parametrize("dtype", [wg.float64, wg.float16, wg.int32])
def test_map_calls_a_function_of_elements_of_several_tensors(dtype: wg.DType) -> None:
    x = wg.arange(6, dtype=dtype, device="cpu").reshape(2, 3)
    row = wg.tensor([1, 2, 3], dtype=dtype, device="cpu")
    assert x.map_(row, lambda a, b: a * b) is x
    assert x.tolist() == [[0, 2, 6], [3, 8, 15]]
    x.map2_(row, row[:1], lambda a, b, c: a - b + c)
    assert x.tolist() == [[0, 1, 4], [3, 7, 13]]
    assert x.dtype is dtype


def test_map_refuses_other_tensors() -> None:
    x = wg.ones(3, device="cpu")
    for other, error in (
        (wg.ones(2, device="cpu"), RuntimeError), (wg.ones(3, dtype=wg.int32, device="cpu"), TypeError),
        (wg.ones(3, device="cpu", requires_grad=True), RuntimeError), (wg.ones(3, device="meta"), RuntimeError),
        (3, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            x.map_(other, lambda a, b: a)  # type: ignore[arg-type]
        with pytest.raises(error):
            x.map2_(x, other, lambda a, b, c: a)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no derivative"):
        wg.ones(3, device="cpu", requires_grad=True).map_(x, lambda a, b: a)


def test_a_subclass_over_the_same_memory_has_the_same_history() -> None:
    class Picture(wg.Tensor):
        def __new__(cls, data: object, *, scale: float) -> Picture:  # type: ignore[misc]
            return (wg.as_tensor(data) * scale).as_subclass(cls)

    x = wg.ones(3, requires_grad=True)
    picture = Picture(x, scale=2.0)
    assert type(picture) is Picture
    assert picture.tolist() == [2, 2, 2]
    picture.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    leaf = wg.Tensor._make_subclass(Picture, x, True)
    assert (type(leaf), leaf.is_leaf, leaf.requires_grad) == (Picture, True, True)
    view = wg.zeros(4)[1:].as_subclass(Picture)
    view.fill_(1)
    assert view._is_view()


def test_a_subclass_constructs_in_new_after_multiprocessing_was_imported() -> None:
    """Multiprocessing registers subclasses, too, by the same hook of the class."""
    import weftgrad.multiprocessing  # noqa: F401

    class Picture(wg.Tensor):
        def __new__(cls, data: object, *, scale: float) -> Picture:  # type: ignore[misc]
            return (wg.as_tensor(data) * scale).as_subclass(cls)

    assert Picture([1.0], scale=3.0).tolist() == [3.0]
    assert type(Picture([1.0], scale=3.0)) is Picture


def test_kinds_of_devices_that_do_not_exist() -> None:
    x = wg.ones(2)
    assert not any((x.is_xpu, x.is_mps, x.is_meta, x.is_nested, x.is_mkldnn, x.is_inference()))
    with wg.inference_mode():
        assert not wg.ones(2).is_inference()


def test_next_functions_lead_to_the_leaves() -> None:
    x, y, constant = wg.ones(2, requires_grad=True), wg.ones(2, requires_grad=True), wg.ones(2)
    total = ((x * y).exp() * constant + x).sum()
    leaves, pending = [], [total.grad_fn]
    while pending:
        node = pending.pop()
        if isinstance(node, AccumulateGrad):
            leaves.append(node)
        elif node is not None:
            pending += [following for following, _ in node.next_functions]
    assert [leaf.variable is x for leaf in leaves].count(True) == 2
    assert {leaf.variable is y for leaf in set(leaves)} == {True, False}
    assert len(set(leaves)) == 2
    product = (x.exp() * constant).grad_fn
    assert product is not None
    assert [node is not None for node, _ in product.next_functions] == [True, False]
    assert leaves[0].next_functions == ()


def test_next_functions_of_nodes_with_their_own_gradient_function() -> None:
    """Custom functions, writes to views and recurrent layers have edges that are no operands of their record."""

    class Doubled(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, factor: int, y: Any) -> Any:  # type: ignore[override]
            return x * factor + y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
            return grad * 2, None, grad

    x, y = wg.ones(2, 3, requires_grad=True), wg.ones(2, 3, requires_grad=True)
    written = x.exp()
    written[0] = y[1]
    layer = wg.nn.LSTM(3, 4)
    for result in (Doubled.apply(x * 3, 2, y), written.sum(), layer(x * 3)[0], x.exp().mul_(y)):
        variables, pending = [], [result.grad_fn]
        while pending:
            node = pending.pop()
            if isinstance(node, AccumulateGrad):
                variables.append(node.variable)
            elif node is not None:
                pending += [following for following, _ in node.next_functions]
        assert any(variable is x for variable in variables)
        assert any(variable is y or variable is layer.weight_hh_l0 for variable in variables)
