"""Compare strides under `memory_format` with PyTorch's, which were printed by PyTorch 2.13.

`X` is row-major, `C` has the channels innermost. Both have the shape `SHAPE`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.runtime.errors import ArgumentError, ShapeError

SHAPE = (2, 3, 4, 5)
VALUES = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
ROW_MAJOR, CHANNELS_LAST = (60, 20, 5, 1), (60, 1, 15, 3)
LAST, LAST_3D = wg.channels_last, wg.channels_last_3d
Cases = dict[str, tuple[Callable[[wg.Tensor, wg.Tensor], wg.Tensor], tuple[int, ...]]]


def tensors() -> tuple[wg.Tensor, wg.Tensor]:
    x = wg.tensor(VALUES)
    return x, x.to(memory_format=LAST)


COPIES: Cases = {
    "to": (lambda x, c: c, CHANNELS_LAST),
    "to a dtype": (lambda x, c: c.to(wg.float64), CHANNELS_LAST),
    "to a dtype and a format": (lambda x, c: x.to(wg.float64, memory_format=LAST), CHANNELS_LAST),
    "to row-major": (lambda x, c: c.to(memory_format=wg.contiguous_format), ROW_MAJOR),
    "to row-major and a dtype": (lambda x, c: c.double(memory_format=wg.contiguous_format), ROW_MAJOR),
    "to row-major, of no format": (lambda x, c: x.mT.to(memory_format=wg.contiguous_format), (60, 20, 1, 5)),
    "to row-major and a dtype, of no format": (
        lambda x, c: x.mT.to(wg.float64, memory_format=wg.contiguous_format), (60, 20, 4, 1),
    ),
    "long": (lambda x, c: c.long(), CHANNELS_LAST),
    "contiguous": (lambda x, c: c.contiguous(), ROW_MAJOR),
    "contiguous in a format": (lambda x, c: x.contiguous(memory_format=LAST), CHANNELS_LAST),
    "clone": (lambda x, c: c.clone(), CHANNELS_LAST),
    "clone in a format": (lambda x, c: wg.clone(x, memory_format=LAST), CHANNELS_LAST),
    "clone row-major": (lambda x, c: c.clone(memory_format=wg.contiguous_format), ROW_MAJOR),
    "clone of a slice": (lambda x, c: c[:, :, ::2].clone(), (30, 1, 15, 3)),
    "clone of a transposed slice": (lambda x, c: x.transpose(1, 2)[:, ::2].clone(), (30, 5, 10, 1)),
    "clone of an expanded tensor": (lambda x, c: x[:1].expand(6, 3, 4, 5).clone(), ROW_MAJOR),
    "deepcopy": (lambda x, c: copy.deepcopy(c), CHANNELS_LAST),
    "parameter": (lambda x, c: nn.Parameter(c), CHANNELS_LAST),
    "one channel": (lambda x, c: x[:, :1].to(memory_format=LAST), (20, 1, 5, 1)),
    "one pixel": (lambda x, c: x[:, :, :1, :1].to(memory_format=LAST), (3, 1, 3, 3)),
    "one number for each image": (lambda x, c: wg.ones(4, 1, 1, 1).to(memory_format=LAST), (1, 1, 1, 1)),
    "one column": (lambda x, c: wg.ones(2, 3, 4, 1).to(memory_format=LAST), (12, 1, 3, 3)),
    "one image of one channel": (lambda x, c: wg.ones(1, 1, 4, 5).to(memory_format=LAST), (20, 1, 5, 1)),
    "volumes": (lambda x, c: wg.ones(2, 3, 4, 5, 6).to(memory_format=LAST_3D), (360, 1, 90, 18, 3)),
}  # fmt: skip
NEW: Cases = {
    "empty": (lambda x, c: wg.empty(SHAPE, memory_format=LAST), CHANNELS_LAST),
    "empty volumes": (lambda x, c: wg.empty(2, 3, 4, 5, 6, memory_format=LAST_3D), (360, 1, 90, 18, 3)),
    "empty without channels": (lambda x, c: wg.empty(2, 0, 4, 5, memory_format=LAST), (0, 1, 0, 0)),
    "empty_like": (lambda x, c: wg.empty_like(c), CHANNELS_LAST),
    "empty_like preserves": (lambda x, c: wg.empty_like(c, memory_format=wg.preserve_format), CHANNELS_LAST),
    "empty_like row-major": (lambda x, c: wg.empty_like(c, memory_format=wg.contiguous_format), ROW_MAJOR),
    "empty_like in a format": (lambda x, c: wg.empty_like(x, memory_format=LAST), CHANNELS_LAST),
    "empty_like of a slice": (lambda x, c: wg.empty_like(c[:, :, ::2]), (30, 1, 15, 3)),
    "zeros_like": (lambda x, c: wg.zeros_like(x, memory_format=LAST), CHANNELS_LAST),
    "full_like": (lambda x, c: wg.full_like(x, 2, memory_format=LAST), CHANNELS_LAST),
    "rand_like": (lambda x, c: wg.rand_like(x, memory_format=LAST), CHANNELS_LAST),
    "randn_like": (lambda x, c: wg.randn_like(c), CHANNELS_LAST),
    "new_empty": (lambda x, c: c.new_empty(SHAPE), ROW_MAJOR),
    "resize_": (lambda x, c: wg.ones(120).resize_(SHAPE, memory_format=LAST), CHANNELS_LAST),
    "resize_as_": (lambda x, c: wg.ones(120).resize_as_(c), ROW_MAJOR),
    "resize_as_ preserves": (
        lambda x, c: wg.ones(120).resize_as_(c, memory_format=wg.preserve_format), CHANNELS_LAST,
    ),
}  # fmt: skip
POINTWISE: Cases = {
    "relu": (lambda x, c: c.relu(), CHANNELS_LAST),
    "relu of a slice": (lambda x, c: c[:, :, ::2].relu(), (30, 1, 15, 3)),
    "relu of an expanded tensor": (lambda x, c: x[:1].expand(6, 3, 4, 5).relu(), ROW_MAJOR),
    "sum": (lambda x, c: c + c, CHANNELS_LAST),
    "times a number": (lambda x, c: c * 2, CHANNELS_LAST),
    "the first operand decides": (lambda x, c: c + x, CHANNELS_LAST),
    "the first operand decides for row-major": (lambda x, c: x + c, ROW_MAJOR),
    "a bias, broadcast": (lambda x, c: c + wg.ones(3, 1, 1), CHANNELS_LAST),
    "a bias, broadcast, first": (lambda x, c: wg.ones(3, 1, 1) + c, CHANNELS_LAST),
    "a broadcast matrix decides for its dimensions": (lambda x, c: wg.ones(5, 4).T + x, (60, 20, 1, 4)),
    "a broadcast matrix comes second": (lambda x, c: x + wg.ones(5, 4).T, ROW_MAJOR),
    "matrices": (lambda x, c: wg.ones(3, 4).T + wg.ones(4, 3), (1, 4)),
    "comparison": (lambda x, c: c > 0, CHANNELS_LAST),
    "where": (lambda x, c: wg.where(c > 0, c, x), CHANNELS_LAST),
    "gelu": (lambda x, c: nn.functional.gelu(c), CHANNELS_LAST),
    "prelu": (lambda x, c: nn.functional.prelu(c, wg.ones(3)), CHANNELS_LAST),
    "dropout": (lambda x, c: nn.functional.dropout(c), CHANNELS_LAST),
    "batch norm": (lambda x, c: nn.BatchNorm2d(3)(c), CHANNELS_LAST),
    "flip": (lambda x, c: c.flip(1), CHANNELS_LAST),
    "one channel": (lambda x, c: x[:, :1].to(memory_format=LAST).relu(), (20, 20, 5, 1)),
}
CASES = {
    f"{kind}: {name}": case
    for kind, cases in (("copy", COPIES), ("new", NEW), ("op", POINTWISE))
    for name, case in cases.items()
}


@pytest.mark.parametrize(("function", "strides"), CASES.values(), ids=CASES)
def test_strides(function: Callable[..., wg.Tensor], strides: tuple[int, ...]) -> None:
    assert function(*tensors()).stride() == strides


@pytest.mark.parametrize("name", [name for name in (*COPIES, *POINTWISE) if name != "dropout"])
def test_values_do_not_depend_on_the_format(name: str) -> None:
    function, _ = (COPIES | POINTWISE)[name]
    x, c = tensors()
    np.testing.assert_array_equal(function(x, c).detach().numpy(), function(x, x.clone()).detach().numpy())


def test_channels_lie_next_to_each_other_in_memory() -> None:
    x, c = tensors()
    in_memory = c.as_strided((120,), (1,)).numpy()
    np.testing.assert_array_equal(in_memory, VALUES.transpose(0, 2, 3, 1).reshape(-1))
    volumes = wg.tensor(np.arange(48.0).reshape(2, 3, 2, 2, 2)).to(memory_format=LAST_3D)
    assert volumes.as_strided((6,), (1,)).tolist() == [0, 8, 16, 1, 9, 17]
    assert wg.arange(120.0).resize_(SHAPE, memory_format=LAST)[0, :, 0, 0].tolist() == [0, 1, 2]
    assert x.stride() == ROW_MAJOR


def test_is_contiguous_answers_by_strides() -> None:
    x, c = tensors()
    assert c.is_contiguous(memory_format=LAST)
    assert not c.is_contiguous()
    assert not x.is_contiguous(memory_format=LAST)
    assert x.is_contiguous(memory_format=wg.contiguous_format)
    assert not c[:, :, ::2].is_contiguous(memory_format=LAST)
    assert not c.is_contiguous(memory_format=LAST_3D)
    assert not wg.ones(3).is_contiguous(memory_format=LAST)
    assert wg.ones(2, 1, 4, 5).is_contiguous(memory_format=LAST)  # row-major, too
    assert c.permute(0, 2, 3, 1).view(-1).shape == (120,)


def test_a_tensor_in_the_format_is_not_copied() -> None:
    x, c = tensors()
    assert c.to(memory_format=LAST) is c.contiguous(memory_format=LAST) is c
    assert x.to(memory_format=wg.contiguous_format) is x
    assert x.to(memory_format=wg.preserve_format) is x
    assert c.to(memory_format=LAST, copy=True) is not c
    gray = wg.ones(2, 1, 4, 5)
    assert gray.contiguous(memory_format=LAST) is gray
    assert gray.to(memory_format=LAST).stride() == (20, 1, 5, 1)  # the strides of `gray` say row-major


@pytest.mark.parametrize(
    "call",
    [
        lambda: wg.ones(3).to(memory_format=LAST),
        lambda: wg.ones(3).contiguous(memory_format=LAST),
        lambda: wg.ones(3).clone(memory_format=LAST),
        lambda: wg.empty(3, memory_format=LAST),
        lambda: wg.empty_like(wg.ones(SHAPE), memory_format=LAST_3D),
        lambda: nn.Conv2d(3, 4, 3).to(memory_format=LAST_3D),
    ],
)
def test_a_format_is_for_one_rank(call: Callable[[], object]) -> None:
    with pytest.raises(ShapeError, match="is for tensors of rank"):
        call()


@pytest.mark.parametrize("name", ["preserve_format", "channels_first"])
def test_new_tensors_have_nothing_to_preserve(name: Any) -> None:
    for call in (lambda: wg.empty(SHAPE, memory_format=name), lambda: wg.ones(SHAPE).contiguous(memory_format=name)):
        with pytest.raises(ArgumentError, match=name):
            call()


@pytest.mark.parametrize("dtype", [wg.float32, wg.float16])
def test_gradients_flow_through_conversions(dtype: wg.dtype) -> None:
    x = wg.tensor(VALUES, requires_grad=True)
    weight = wg.tensor(np.arange(120.0, dtype=np.float32).reshape(SHAPE))
    converted = x.to(dtype, memory_format=LAST)
    (converted.float() * weight).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), weight.numpy())
    (twice,) = wg.autograd.grad((x.contiguous(memory_format=LAST) ** 3).sum(), x, create_graph=True)
    twice.sum().backward()
    np.testing.assert_allclose(x.grad.numpy() - weight.numpy(), 6 * VALUES, rtol=1e-5, atol=1e-4)


def train(memory_format: Any, optimizer: Callable[..., Any]) -> tuple[nn.Module, list[np.ndarray]]:
    wg.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3),
        nn.Flatten(), nn.LazyLinear(2),
    )  # fmt: skip
    images = wg.tensor(np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    model(images)
    model.to(memory_format=memory_format)
    images = images.to(memory_format=memory_format)
    step = optimizer(model.parameters())
    for _ in range(3):
        step.zero_grad()
        model(images).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
    return model, [p.detach().numpy() for p in model.parameters()]


@pytest.mark.parametrize(
    "optimizer", [lambda p: wg.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: wg.optim.AdamW(p, lr=0.01)]
)
def test_a_model_trains_alike_in_both_formats(optimizer: Callable[..., Any]) -> None:
    model, weights = train(LAST, optimizer)
    strides = {name: p.stride() for name, p in model.named_parameters()}
    assert strides["0.weight"] == (27, 1, 9, 3)
    assert strides["1.weight"] == (1,)
    _, expected = train(wg.contiguous_format, optimizer)
    for weight, reference in zip(weights, expected, strict=True):
        np.testing.assert_allclose(weight, reference, rtol=2e-4, atol=2e-6)
    state = model.state_dict()
    assert state["0.weight"].is_contiguous(memory_format=LAST)


def test_plans_of_new_sizes_keep_the_format() -> None:
    """After some calls a family of plans answers for sizes that were not seen."""
    for height in range(2, 14):
        x = wg.tensor(np.random.default_rng(height).standard_normal((2, 3, height, 7)).astype(np.float32))
        c = x.contiguous(memory_format=LAST)
        assert c.stride() == (21 * height, 1, 21, 3)
        for result in (c * x, wg.ones(3, 1, 1) + c, c[:, :, :, ::2].exp()):
            assert result.permute(0, 2, 3, 1).is_contiguous()
        np.testing.assert_array_equal((c * x).numpy(), (x * x).numpy())
        np.testing.assert_array_equal((x + wg.ones(7, height).T).numpy(), x.numpy() + 1)


def test_a_copy_to_another_device_keeps_the_order() -> None:
    x, c = tensors()
    for source, strides in ((c, CHANNELS_LAST), (c[:, :, ::2], (30, 1, 15, 3)), (x, ROW_MAJOR)):
        assert source.to("meta").stride() == strides
    assert x.to("meta", memory_format=LAST).stride() == CHANNELS_LAST
    assert nn.Conv2d(3, 4, 3).to(memory_format=LAST).to_empty(device="meta").weight.stride() == (27, 1, 9, 3)
