"""Convolutions as users call them: arguments, forms without a batch, transposed ones, layers and errors.

Values and derivatives of the ops themselves are in the table (`op_convolution`), whose references are used here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_convolution import convolution, convolution_input, convolution_weight

import weftgrad as wg
from weftgrad import nn
from weftgrad.cli.compile import place_like
from weftgrad.runtime import dtypes, errors
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import Request, convolution_cpu, planner
from weftgrad.runtime.records import registry

F = nn.functional
RNG = np.random.default_rng(4)


def eighths(*shape: int) -> Any:
    """Multiples of 1/8, whose products and sums are exact."""
    return RNG.integers(-16, 17, shape) / 8


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.detach().numpy(), expected)


def straight(space: int) -> tuple[Any, Any]:
    return getattr(F, f"conv{space}d"), getattr(nn, f"Conv{space}d")


def transposed(space: int) -> tuple[Any, Any]:
    return getattr(F, f"conv_transpose{space}d"), getattr(nn, f"ConvTranspose{space}d")


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_integers(device: str, dtype: str) -> None:
    """Sums wrap around as NumPy's do; one pixel, groups and strides; transposed ones too."""
    if device == "interpreter":
        pytest.importorskip("triton")
    high = np.iinfo(dtype).max
    for kernel, step, groups in (((3, 3), 1, 1), ((2, 3), 2, 2), ((1, 1), 1, 1)):
        x, w, b = (RNG.integers(-high, high, n).astype(dtype) for n in ((2, 4, 5, 7), (6, 4 // groups, *kernel), (6,)))
        tensors = [wg.tensor(a, device=device) for a in (x, w, b)]
        numbers = (step, step), (1, 1), (1, 1), groups
        found = F.conv2d(*tensors, step, 1, 1, groups)
        assert found.dtype is getattr(wg, dtype)
        same(found.cpu(), convolution(x, w, b, *numbers).astype(dtype))
        back = F.conv_transpose2d(found, tensors[1], None, step, 1, 0, groups).cpu()
        pair = [a.cpu().numpy() for a in (found, tensors[1])]
        same(back, convolution_input(*pair, back.shape[2:], *numbers).astype(dtype))


@pytest.mark.parametrize("space", [1, 2, 3])
def test_forms(space: int) -> None:
    """Numbers for all dimensions, a number each, lists; with a batch and without; the names that users have."""
    call, _ = straight(space)
    sizes, kernel = (9, 6, 5)[:space], (3, 2, 3)[:space]
    x, w, b = eighths(2, 4, *sizes), eighths(6, 2, *kernel), eighths(6)
    tensors = [wg.tensor(a, dtype=wg.float32) for a in (x, w, b)]
    step, around, apart = (2, 1, 1)[:space], (1, 1, 1)[:space], (1, 2, 1)[:space]
    expected = convolution(x, w, b, step, around, apart, 2)
    same(call(*tensors, list(step), 1, apart, 2), expected)
    same(call(tensors[0][1], *tensors[1:], step, padding=[1], dilation=apart, groups=2), expected[1])
    same(getattr(wg, f"conv{space}d")(*tensors, stride=step, padding=around, dilation=apart, groups=2), expected)
    same(wg.convolution(*tensors, step, around, apart, False, (0,) * space, 2), expected)
    assert call(tensors[0][:0], tensors[1], groups=2).shape[0] == 0
    # no channels: nothing but the bias
    empty = call(wg.zeros(1, 0, *sizes), wg.zeros(6, 0, *kernel), tensors[2])
    same(empty, np.broadcast_to(b.reshape(-1, *(1,) * space), empty.shape))


@pytest.mark.parametrize("space", [1, 2, 3])
def test_same_and_valid(space: int) -> None:
    """`same` keeps the size; of an odd number of rows of zeros, the last is behind."""
    call, layer = straight(space)
    sizes, kernel, apart = (7, 6, 5)[:space], (4, 3, 2)[:space], (1, 2, 3)[:space]
    x, w = eighths(2, 3, *sizes), eighths(4, 3, *kernel)
    total = [d * (k - 1) for d, k in zip(apart, kernel, strict=True)]
    both = (*(t // 2 for t in total), *(t - t // 2 for t in total))
    expected = convolution(x, w, None, (1,) * space, both, apart, 1)
    given = wg.tensor(x, dtype=wg.float32, requires_grad=True)
    weight = wg.tensor(w, dtype=wg.float32)
    found = call(given, weight, padding="same", dilation=apart)
    assert found.shape == (2, 4, *sizes)
    same(found, expected)
    found.sum().backward()
    same(given.grad, convolution_input(np.ones(expected.shape), w, sizes, (1,) * space, both, apart, 1))
    same(call(given, weight, padding="valid"), convolution(x, w, None, *([(n,) * space for n in (1, 0, 1)]), 1))
    assert layer(3, 4, kernel, padding="same", dilation=apart)(given).shape == (2, 4, *sizes)


@pytest.mark.parametrize("space", [1, 2, 3])
def test_transposed(space: int) -> None:
    """The transpose of the convolution of the same weight; output_padding says of which size."""
    call, layer = transposed(space)
    sizes, kernel = (4, 3, 2)[:space], (3, 2, 3)[:space]
    step, around, apart, more = (2, 3, 1)[:space], (1, 0, 1)[:space], (1, 2, 2)[:space], (1, 2, 1)[:space]
    x, w, b = eighths(2, 6, *sizes), eighths(6, 2, *kernel), eighths(4)
    out = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + q + 1
        for n, s, p, d, k, q in zip(sizes, step, around, apart, kernel, more, strict=True)
    )
    expected = convolution_input(x, w, out, step, around, apart, 2) + b.reshape(-1, *(1,) * space)
    tensors = [wg.tensor(a, dtype=wg.float32, requires_grad=True) for a in (x, w, b)]
    found = call(*tensors, step, around, more, 2, apart)
    same(found, expected)
    same(call(tensors[0][1], *tensors[1:], step, around, more, 2, apart), expected[1])
    same(wg.convolution(*tensors, step, around, apart, True, more, 2), expected)
    grad = eighths(*expected.shape)
    to_input, to_weight, to_bias = wg.autograd.grad(found, tensors, wg.tensor(grad, dtype=wg.float32))
    # output_padding may let whole windows more into the result; they are none of the input's
    cut = (slice(None), slice(None), *(slice(n) for n in sizes))
    same(to_input, convolution(grad, w, None, step, around, apart, 2)[cut])
    same(to_weight, convolution_weight(grad, x, kernel, step, around, apart, 2))
    same(to_bias, grad.sum((0, *range(2, space + 2))))
    made = layer(6, 4, kernel, step, around, groups=2, dilation=apart)
    assert made.weight.shape == (6, 2, *kernel)
    out = tuple(n - q + min(q, s - 1) for n, q, s in zip(out, more, step, strict=True))
    assert made(tensors[0], output_size=out).shape == (2, 4, *out)
    assert made(tensors[0], (2, 4, *out)).shape == (2, 4, *out)
    with pytest.raises(errors.ArgumentError, match="sizes from"):
        made(tensors[0], tuple(n + 3 for n in out))


def test_any_strides_and_half() -> None:
    x, w = eighths(2, 6, 7, 3), eighths(3, 3, 4, 3)
    expected = convolution(x.transpose(0, 3, 1, 2), w.transpose(2, 1, 3, 0), None, (1, 1), (0, 0), (1, 1), 1)
    for dtype in (wg.float32, wg.float16, wg.bfloat16):
        a, b = (wg.tensor(v, dtype=dtype) for v in (x, w))
        found = F.conv2d(a.permute(0, 3, 1, 2), b.permute(2, 1, 3, 0))
        assert found.dtype is dtype
        np.testing.assert_allclose(found.float().numpy(), expected, rtol=4e-3 if dtype is wg.bfloat16 else 5e-4)
    grown = F.conv2d(wg.ones(1, 1, 3, 3, requires_grad=True), wg.ones(1, 1, 2, 2))
    grown.sum().backward()  # an expanded gradient


@pytest.mark.parametrize(
    ("image", "stride", "padding"), [((2, 3, 4, 4), 1, 1), ((3, 2, 5, 7), 2, 2), ((2, 1, 3, 17), 1, 0)]
)
def test_images_do_not_touch(image: tuple[int, ...], stride: int, padding: int) -> None:
    """What is not finite in one image, or in its gradient, is not in the others, whose planes lie beside it."""
    x = wg.tensor(eighths(*image), dtype=wg.float32)
    x[1] = float("nan")
    x.requires_grad_()
    y = F.conv2d(x, wg.ones(20, image[1], 3, 3), stride=stride, padding=padding)
    grad = wg.ones(y.shape)
    grad[1] = float("inf")
    (slope,) = wg.autograd.grad(y, x, grad)
    for each in (y.detach(), slope):
        assert each[0].isfinite().all()
        assert not each[1].isfinite().any()


def test_patches_are_read_where_they_are() -> None:
    """Windows that neither overlap nor reach past an image: of a part of a tensor, in rows and with channels last."""
    images, w = eighths(3, 16, 20, 28), eighths(32, 16, 2, 2)
    x = images[1:]
    rows = wg.tensor(images, dtype=wg.float32)
    last = wg.tensor(np.ascontiguousarray(images.transpose(0, 2, 3, 1)), dtype=wg.float32).permute(0, 3, 1, 2)
    weight = wg.tensor(w, dtype=wg.float32, requires_grad=True)
    for whole in (rows, last):
        found = F.conv2d(whole[1:], weight, stride=2)
        same(found, convolution(x, w, None, (2, 2), (0, 0), (1, 1), 1))
        (slope,) = wg.autograd.grad(found, weight, wg.tensor(grad := eighths(*found.shape), dtype=wg.float32))
        same(slope, convolution_weight(x, grad, (2, 2), (2, 2), (0, 0), (1, 1), 1))


# Channels in, out; sizes, kernel, strides, rows of zeros, dilations; groups.
_MANY = [
    (16, 48, (12, 12), (3, 5), (1, 1), (0, 0), (1, 1), 1),  # with channels last, taps of a row are no neighbours
    (16, 32, (7, 14), (3, 3), (2, 1), (1, 1), (2, 1), 1),  # every other row of the gradient has no taps
    (32, 33, (9, 16), (3, 3), (2, 1), (1, 0), (1, 1), 1),  # rows of a parity are fewer, and read more
    (32, 66, (14, 14), (3, 1), (1, 2), (4, 2), (1, 1), 2),  # more zeros than taps reach: the gradient begins outside
    (64, 32, (3, 4, 14), (3, 3, 2), (1, 2, 1), (0, 0, 4), (1, 1, 1), 4),
    (32, 32, (8, 13, 14), (3, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), 1),  # slices of a parity are fewer rows
    (16, 64, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 1),  # a run of pixels is a row, and has zeros at its ends
    (16, 64, (14, 7), (5, 5), (1, 1), (2, 2), (1, 1), 1),
    (16, 64, (7, 14), (3, 3), (1, 1), (0, 2), (1, 1), 1),
    (16, 64, (7, 14), (3, 3), (1, 1), (6, 1), (3, 1), 1),  # rows of results that see nothing but zeros
    (16, 64, (5, 7, 14), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
    (16, 64, (5, 12), (2, 2), (2, 2), (0, 0), (1, 1), 1),  # read where it is
    (16, 64, (6, 28), (3, 3), (2, 2), (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize(("dtype", "last"), [(wg.float32, False), (wg.float32, True), (wg.float64, False)])
@pytest.mark.parametrize("case", _MANY)
def test_forms_with_many_channels(case: Any, dtype: Any, last: bool) -> None:
    """Forward and both gradients, as layers of networks are, which runs of pixels and vectors of channels are for."""
    ins, outs, size, kernel, *numbers, groups = case
    x, w = eighths(2, ins, *size), eighths(outs, ins // groups, *kernel)
    expected = convolution(x, w, None, *numbers, groups)
    given = wg.tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x, dtype=dtype)
    given = (given.movedim(-1, 1) if last else given).requires_grad_(True)
    weight = wg.tensor(w, dtype=dtype, requires_grad=True)
    found = straight(len(size))[0](given, weight, None, *numbers, groups)
    same(found, expected)
    grad = eighths(*expected.shape)
    to_input, to_weight = wg.autograd.grad(found, (given, weight), wg.tensor(grad, dtype=dtype))
    same(to_input, convolution_input(grad, w, size, *numbers, groups))
    same(to_weight, convolution_weight(x, grad, kernel, *numbers, groups))


@pytest.mark.parametrize("size", [(32, 16), (16, 6, 16), (30, 21)])
def test_rows_are_padded_a_few_at_a_time(size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In two and three dimensions, and in rows that runs of pixels divide and others; forward, and by the input."""
    space = len(size)
    monkeypatch.setattr(convolution_cpu, "_FILLED", 4 * 16 * (size[-1] + 2) * 8)  # eight rows, or four slices
    call, one = straight(space)[0], (1,) * space
    x, w, b = eighths(2, 16, *size), eighths(32, 16, *(3,) * space), eighths(32)
    images, weight, bias = (wg.tensor(a, dtype=wg.float32) for a in (x, w, b))
    expected = convolution(x, w, b, one, one, one, 1)
    # Also of every other row of an image, with channels last, where columns are not neighbours.
    last = wg.tensor(np.repeat(np.moveaxis(x, 1, -1), 2, axis=1), dtype=wg.float32)
    strided = last[:, ::2].permute(0, space + 1, *range(1, space + 1))
    for given in (images, strided):
        same(call(given, weight, bias, 1, 1), expected)
    v = eighths(16, 32, *(3,) * space)
    wide = wg.zeros(2, 32, *size, requires_grad=True)
    (slope,) = wg.autograd.grad(call(wide, wg.tensor(v, dtype=wg.float32), None, 1, 1), wide, images)
    same(slope, convolution_input(x, v, size, one, one, one, 1))


def test_several_outputs_of_single_channels() -> None:
    """In rows of a vector and more; what is past the last output, and at the end of a row, is computed twice."""
    x, w, b = eighths(3, 2, 9, 37), eighths(26, 1, 3, 3), eighths(26)
    images, weight, bias = (wg.tensor(a, dtype=wg.float32) for a in (x, w, b))
    for step in (1, 2):
        expected = convolution(x, w, b, (step, step), (1, 1), (1, 1), 2)
        same(F.conv2d(images, weight, bias, step, 1, groups=2), expected)
    w = eighths(3, 1, 2, 1)
    expected = convolution(x[:, :1, :, ::-1], w, None, (1, 1), (0, 0), (2, 1), 1)
    same(F.conv2d(images[:, :1].flip(3), wg.tensor(w, dtype=wg.float32), dilation=(2, 1)), expected)


def test_inputs_that_no_window_sees() -> None:
    """Their gradient is zero: here a single column, of which the windows see the zeros on both sides."""
    x = wg.ones(1, 3, 4, 1, requires_grad=True)
    y = F.conv2d(x, wg.ones(20, 3, 1, 1), stride=2, padding=1)
    assert y.shape == (1, 20, 3, 2)
    y.sum().backward()
    same(x.grad, np.zeros((1, 3, 4, 1)))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_layers_pad_by_mode(mode: str) -> None:
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    x = eighths(2, 3, 5, 6)
    for padding, sides in (((1, 2), ((1, 1), (2, 2))), ("same", ((0, 1), (1, 1)))):
        layer = nn.Conv2d(3, 4, (2, 3), padding=padding, padding_mode=mode, bias=False)
        layer.weight.data.copy_(wg.tensor(w := eighths(4, 3, 2, 3), dtype=wg.float32))
        wide = np.pad(x, ((0, 0), (0, 0), *sides), names[mode])  # type: ignore[call-overload]
        same(layer(wg.tensor(x, dtype=wg.float32)), convolution(wide, w, None, (1, 1), (0, 0), (1, 1), 1))
        assert f"padding_mode={mode}" in repr(layer)


def test_grids_of_triton_are_flat() -> None:
    """The second and third side of a grid end at 65535 programs: groups, and tiles of channels, may be more."""
    pytest.importorskip("triton")
    place = place_like("sm_90")
    for channels, groups in ((70000, 70000), (70000 * 64, 1)):
        kernel = meta(dtypes.float32, (channels, 1, 1, 1), None, place)
        image, result = (meta(dtypes.float32, (1, n, 1, 1), None, place) for n in (groups, channels))
        plain = ((1, 1), (0, 0), (1, 1), groups)
        for op, operands, statics in (
            ("convolution", (image, kernel, None), plain),
            ("convolution_input", (result, kernel), ((1, 1), *plain)),
            ("convolution_weight", (image, result), ((1, 1), *plain)),
        ):
            for step in planner("custom")(Request(registry[op], operands, statics, place)).steps:
                assert len(step.global_size) == 1
                assert step.global_size[0] < 2**31


def test_layers_show_what_they_are() -> None:
    assert repr(nn.Conv3d(2, 4, (1, 2, 3), padding=1, groups=2, bias=False)) == (
        "Conv3d(2, 4, kernel_size=(1, 2, 3), stride=(1, 1, 1), padding=(1, 1, 1), groups=2, bias=False)"
    )
    assert repr(nn.ConvTranspose1d(2, 4, 3, 2, 1, 1, dilation=2)) == (
        "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), output_padding=(1,))"
    )
    assert "padding=same" in repr(nn.Conv1d(2, 2, 1, padding="same"))
    assert nn.ConvTranspose3d(4, 2, 1).weight.shape == (4, 2, 1, 1, 1)


ONE, IMAGE, KERNEL, TURNED = wg.ones(1, 1, 2, 2), wg.ones(1, 3, 4, 4), wg.ones(2, 3, 3, 3), wg.ones(3, 2, 3, 3)
# What is called, and what the message says, by the builtin that PyTorch raises.
FAULTS: dict[type, dict[str, tuple[Any, str]]] = {
    RuntimeError: {
        "a small input": (lambda: F.conv2d(ONE, wg.ones(1, 1, 3, 3)), r"padded input has \[2, 2\]"),
        "channels": (lambda: F.conv2d(IMAGE, wg.ones(2, 2, 3, 3)), "takes 2 channels; the input"),
        "groups": (lambda: F.conv2d(IMAGE, wg.ones(2, 1, 3, 3), groups=3), "into 3 groups"),
        "no groups": (lambda: F.conv2d(IMAGE, KERNEL, groups=0), "at least 1"),
        "bias": (lambda: F.conv2d(IMAGE, KERNEL, wg.ones(3)), r"shape \[2\], not \[3\]"),
        "dimensions": (lambda: F.conv2d(wg.ones(4, 4), KERNEL), "3 or 4 dimensions"),
        "weight": (lambda: F.conv1d(wg.ones(3, 4), KERNEL), "weight must have 3 dimensions"),
        "stride": (lambda: F.conv2d(IMAGE, KERNEL, stride=0), "stride must be at least 1"),
        "strides": (lambda: F.conv2d(IMAGE, KERNEL, stride=(1, 1, 1)), "2 of them"),
        "padding": (lambda: F.conv2d(IMAGE, KERNEL, padding=-1), "padding must be at least 0"),
        "a word": (lambda: F.conv2d(IMAGE, KERNEL, padding="full"), "'same' or 'valid'"),
        "same": (lambda: F.conv2d(IMAGE, KERNEL, padding="same", stride=2), "stride of 1"),
        "dtypes": (lambda: F.conv2d(IMAGE, KERNEL.double()), "one dtype"),
        "no pixels": (lambda: F.conv2d(wg.ones(1, 3, 0, 4), KERNEL, padding=2), "only the batch"),
        "no taps": (lambda: F.conv2d(IMAGE, wg.ones(2, 3, 0, 3)), "must not have size 0"),
        "output_padding": (lambda: F.conv_transpose2d(IMAGE, TURNED, output_padding=1), "smaller than either"),
        "transposed channels": (lambda: F.conv_transpose2d(IMAGE, KERNEL), "takes 2 channels"),
        "a small result": (lambda: F.conv_transpose2d(IMAGE, TURNED, padding=5), r"the size \[-4, -4\]"),
    },
    TypeError: {
        "a fraction": (lambda: F.conv2d(IMAGE, KERNEL, stride=1.5), "stride must be an int"),
        "no tensor": (lambda: F.conv2d(1, KERNEL), "input must be a tensor"),
        "a word, transposed": (lambda: F.conv_transpose2d(IMAGE, TURNED, padding="same"), "padding must be an int"),
    },
    ValueError: {
        "layer groups": (lambda: nn.Conv2d(3, 4, 3, groups=2), "into 2 groups"),
        "layer padding": (lambda: nn.Conv2d(3, 4, 3, padding="full"), "'same' or 'valid'"),
        "layer same": (lambda: nn.Conv2d(3, 4, 3, 2, "same"), "stride of 1"),
        "layer mode": (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "circular"),
        "layer transposed mode": (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "'zeros'"),
    },
}


@pytest.mark.parametrize(("builtin", "fault"), [(kind, fault) for kind, found in FAULTS.items() for fault in found])
def test_errors(builtin: type[Exception], fault: str) -> None:
    call, message = FAULTS[builtin][fault]
    with pytest.raises(errors.WeftgradError, match=message) as caught:
        call()
    assert isinstance(caught.value, builtin)


def test_weights_of_one_pixel_in_half_types():
    """Their gradient is a matrix product an image, summed over images: exact here, so rounded nowhere."""
    dtype, rng = wg.bfloat16, np.random.default_rng(0)
    x, g = (rng.integers(-3, 4, (2, c, 3, 5)).astype(np.float32) for c in (4, 8))
    images = wg.tensor(x, dtype=dtype, device="cpu")
    weight = wg.zeros(8, 4, 1, 1, dtype=dtype, device="cpu", requires_grad=True)
    F.conv2d(images, weight).backward(wg.tensor(g, dtype=dtype, device="cpu"))
    np.testing.assert_array_equal(weight.grad[:, :, 0, 0].float().numpy(), np.einsum("noyx,niyx->oi", g, x))
