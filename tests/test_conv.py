"""Check convolutions and transposed convolutions as users call them: argument forms, layers, errors.

`op_convolution` checks values and derivatives of the ops themselves; its reference functions are used here too. NumPy
arrays are called x (input), w (weight) and b (bias); tensors have whole words: images, weight, bias.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest
from op_convolution import convolution, convolution_input, convolution_weight

import weftgrad as wg
from weftgrad import nn
from weftgrad.cli.compile import planning_device
from weftgrad.runtime import dtypes, errors
from weftgrad.runtime.device import meta
from weftgrad.runtime.kinds import Request, convolution_cpu
from weftgrad.runtime.planners import planner
from weftgrad.runtime.records import registry

Ints = tuple[int, ...]
F = nn.functional
RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Give each test the same numbers, whichever tests ran before it."""
    RNG.bit_generator.state = np.random.default_rng(4).bit_generator.state


def eighths(*shape: int) -> Any:
    """Return an array of random multiples of 1/8: their products and sums are exact in floating point."""
    return RNG.integers(-16, 17, shape) / 8


def assert_equal(actual: Any, expected: Any) -> None:
    np.testing.assert_array_equal(actual.detach().numpy(), expected)


def channels_last(x: Any, dtype: Any = wg.float32) -> wg.Tensor:
    """Return a tensor with the values and shape of x whose channels are contiguous in memory."""
    return wg.tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1)), dtype=dtype).movedim(-1, 1)


def forward_api(dims: int) -> tuple[Any, Any]:
    """Return `conv{dims}d` and its layer."""
    return getattr(F, f"conv{dims}d"), getattr(nn, f"Conv{dims}d")


def transposed_api(dims: int) -> tuple[Any, Any]:
    """Return `conv_transpose{dims}d` and its layer."""
    return getattr(F, f"conv_transpose{dims}d"), getattr(nn, f"ConvTranspose{dims}d")


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_integers(device: str, dtype: str) -> None:
    """Integer sums wrap around as in NumPy, with groups, strides and 1x1 kernels, also in transposed convolutions."""
    if device == "interpreter":
        pytest.importorskip("triton")
    max_value = np.iinfo(dtype).max
    for kernel, stride, groups in (((3, 3), 1, 1), ((2, 3), 2, 2), ((1, 1), 1, 1)):
        x, w, b = (
            RNG.integers(-max_value, max_value, shape).astype(dtype)
            for shape in ((2, 4, 5, 7), (6, 4 // groups, *kernel), (6,))
        )
        tensors = [wg.tensor(a, device=device) for a in (x, w, b)]
        geometry = (stride, stride), (1, 1), (1, 1), groups
        output = F.conv2d(*tensors, stride, 1, 1, groups)
        assert output.dtype is getattr(wg, dtype)
        assert_equal(output.cpu(), convolution(x, w, b, *geometry).astype(dtype))
        transposed_output = F.conv_transpose2d(output, tensors[1], None, stride, 1, 0, groups).cpu()
        arrays = [a.cpu().numpy() for a in (output, tensors[1])]
        assert_equal(
            transposed_output, convolution_input(*arrays, transposed_output.shape[2:], *geometry).astype(dtype)
        )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_argument_forms(dims: int) -> None:
    """Arguments may be one number, a tuple or a list, with or without a batch, by position or keyword."""
    call, _ = forward_api(dims)
    sizes, kernel = (9, 6, 5)[:dims], (3, 2, 3)[:dims]
    x, w, b = eighths(2, 4, *sizes), eighths(6, 2, *kernel), eighths(6)
    tensors = [wg.tensor(a, dtype=wg.float32) for a in (x, w, b)]
    stride, padding, dilation = (2, 1, 1)[:dims], (1, 1, 1)[:dims], (1, 2, 1)[:dims]
    expected = convolution(x, w, b, stride, padding, dilation, 2)
    assert_equal(call(*tensors, list(stride), 1, dilation, 2), expected)
    assert_equal(call(tensors[0][1], *tensors[1:], stride, padding=[1], dilation=dilation, groups=2), expected[1])
    assert_equal(
        getattr(wg, f"conv{dims}d")(*tensors, stride=stride, padding=padding, dilation=dilation, groups=2), expected
    )
    assert_equal(wg.convolution(*tensors, stride, padding, dilation, False, (0,) * dims, 2), expected)
    assert call(tensors[0][:0], tensors[1], groups=2).shape[0] == 0
    # An input without channels: the result is the bias alone.
    empty = call(wg.zeros(1, 0, *sizes), wg.zeros(6, 0, *kernel), tensors[2])
    assert_equal(empty, np.broadcast_to(b.reshape(-1, *(1,) * dims), empty.shape))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_same_and_valid(dims: int) -> None:
    """`same` keeps the size; of an odd number of padding rows, the end of the image gets one more than its start."""
    call, layer = forward_api(dims)
    sizes, kernel, dilation = (7, 6, 5)[:dims], (4, 3, 2)[:dims], (1, 2, 3)[:dims]
    x, w = eighths(2, 3, *sizes), eighths(4, 3, *kernel)
    total_padding = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    padding = (*(t // 2 for t in total_padding), *(t - t // 2 for t in total_padding))
    expected = convolution(x, w, None, (1,) * dims, padding, dilation, 1)
    images = wg.tensor(x, dtype=wg.float32, requires_grad=True)
    weight = wg.tensor(w, dtype=wg.float32)
    output = call(images, weight, padding="same", dilation=dilation)
    assert output.shape == (2, 4, *sizes)
    assert_equal(output, expected)
    output.sum().backward()
    assert_equal(images.grad, convolution_input(np.ones(expected.shape), w, sizes, (1,) * dims, padding, dilation, 1))
    ones, zeros = (1,) * dims, (0,) * dims
    assert_equal(call(images, weight, padding="valid"), convolution(x, w, None, ones, zeros, ones, 1))
    assert layer(3, 4, kernel, padding="same", dilation=dilation)(images).shape == (2, 4, *sizes)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed(dims: int) -> None:
    """A transposed convolution is the transpose of the one with the same weight; output_padding selects the size."""
    call, layer = transposed_api(dims)
    sizes, kernel = (4, 3, 2)[:dims], (3, 2, 3)[:dims]
    stride, padding, dilation, output_padding = (2, 3, 1)[:dims], (1, 0, 1)[:dims], (1, 2, 2)[:dims], (1, 2, 1)[:dims]
    x, w, b = eighths(2, 6, *sizes), eighths(6, 2, *kernel), eighths(4)
    output_size = tuple(  # PyTorch's formula; q is output_padding
        (n - 1) * s - 2 * p + d * (k - 1) + q + 1
        for n, s, p, d, k, q in zip(sizes, stride, padding, dilation, kernel, output_padding, strict=True)
    )
    expected = convolution_input(x, w, output_size, stride, padding, dilation, 2) + b.reshape(-1, *(1,) * dims)
    tensors = [wg.tensor(a, dtype=wg.float32, requires_grad=True) for a in (x, w, b)]
    output = call(*tensors, stride, padding, output_padding, 2, dilation)
    assert_equal(output, expected)
    assert_equal(call(tensors[0][1], *tensors[1:], stride, padding, output_padding, 2, dilation), expected[1])
    assert_equal(wg.convolution(*tensors, stride, padding, dilation, True, output_padding, 2), expected)
    grad = eighths(*expected.shape)
    grad_input, grad_weight, grad_bias = wg.autograd.grad(output, tensors, wg.tensor(grad, dtype=wg.float32))
    # output_padding may add whole windows to the result, which belong to no input pixel
    input_region = (slice(None), slice(None), *(slice(n) for n in sizes))
    assert_equal(grad_input, convolution(grad, w, None, stride, padding, dilation, 2)[input_region])
    assert_equal(grad_weight, convolution_weight(grad, x, kernel, stride, padding, dilation, 2))
    assert_equal(grad_bias, grad.sum((0, *range(2, dims + 2))))
    conv = layer(6, 4, kernel, stride, padding, groups=2, dilation=dilation)
    assert conv.weight.shape == (6, 2, *kernel)
    # A layer selects output_padding itself, but never more than stride - 1.
    output_size = tuple(n - q + min(q, s - 1) for n, q, s in zip(output_size, output_padding, stride, strict=True))
    assert conv(tensors[0], output_size=output_size).shape == (2, 4, *output_size)
    assert conv(tensors[0], (2, 4, *output_size)).shape == (2, 4, *output_size)
    with pytest.raises(errors.ArgumentError, match="sizes from"):
        conv(tensors[0], tuple(n + 3 for n in output_size))


@pytest.mark.parametrize("dtype", [wg.float32, wg.float16, wg.bfloat16])
def test_permuted_operands(dtype: Any) -> None:
    """Operands need not be contiguous in any dtype; results of the half types are rounded once."""
    x, w = eighths(2, 6, 7, 3), eighths(3, 3, 4, 3)
    expected = convolution(x.transpose(0, 3, 1, 2), w.transpose(2, 1, 3, 0), None, (1, 1), (0, 0), (1, 1), 1)
    images, weight = (wg.tensor(a, dtype=dtype) for a in (x, w))
    output = F.conv2d(images.permute(0, 3, 1, 2), weight.permute(2, 1, 3, 0))
    assert output.dtype is dtype
    np.testing.assert_allclose(output.float().numpy(), expected, rtol=4e-3 if dtype is wg.bfloat16 else 5e-4)


def test_expanded_gradients() -> None:
    """The gradient of a sum has stride 0; each pixel's gradient is the number of windows that contain it."""
    images = wg.ones(1, 1, 3, 3, requires_grad=True)
    F.conv2d(images, wg.ones(1, 1, 2, 2)).sum().backward()
    assert_equal(images.grad[0, 0], [[1, 2, 1], [2, 4, 2], [1, 2, 1]])


@pytest.mark.parametrize(
    ("image", "stride", "padding"), [((2, 3, 4, 4), 1, 1), ((3, 2, 5, 7), 2, 2), ((2, 1, 3, 17), 1, 0)]
)
def test_nan_and_infinity_stay_in_their_image(image: tuple[int, ...], stride: int, padding: int) -> None:
    """NaN in one image, or infinity in its gradient, must not reach the images beside it in memory."""
    x = wg.tensor(eighths(*image), dtype=wg.float32)
    x[1] = float("nan")
    x.requires_grad_()
    y = F.conv2d(x, wg.ones(20, image[1], 3, 3), stride=stride, padding=padding)
    grad = wg.ones(y.shape)
    grad[1] = float("inf")
    (grad_input,) = wg.autograd.grad(y, x, grad)
    for values in (y.detach(), grad_input):
        assert values[0].isfinite().all()
        assert not values[1].isfinite().any()


def test_patches_are_read_without_a_copy() -> None:
    """Windows without overlap or padding are read in place, from a slice of a row-major or channels-last tensor."""
    images, w = eighths(3, 16, 20, 28), eighths(32, 16, 2, 2)
    x = images[1:]
    row_major = wg.tensor(images, dtype=wg.float32)
    weight = wg.tensor(w, dtype=wg.float32, requires_grad=True)
    for batch in (row_major, channels_last(images)):
        output = F.conv2d(batch[1:], weight, stride=2)
        assert_equal(output, convolution(x, w, None, (2, 2), (0, 0), (1, 1), 1))
        (grad_weight,) = wg.autograd.grad(output, weight, wg.tensor(grad := eighths(*output.shape), dtype=wg.float32))
        assert_equal(grad_weight, convolution_weight(x, grad, (2, 2), (2, 2), (0, 0), (1, 1), 1))


class Layer(NamedTuple):
    """The geometry of a layer."""

    in_channels: int
    out_channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


LAYERS = [
    (16, 48, (12, 12), (3, 5), (1, 1), (0, 0), (1, 1), 1),  # with channels last, the taps of a row are not adjacent
    (16, 32, (7, 14), (3, 3), (2, 1), (1, 1), (2, 1), 1),  # every other row of the input gradient gets no tap
    (32, 33, (9, 16), (3, 3), (2, 1), (1, 0), (1, 1), 1),  # the rows of one parity are fewer, and get more taps
    (32, 66, (14, 14), (3, 1), (1, 2), (4, 2), (1, 1), 2),  # more padding than taps: first gradients outside
    (64, 32, (3, 4, 14), (3, 3, 2), (1, 2, 1), (0, 0, 4), (1, 1, 1), 4),
    (32, 32, (8, 13, 14), (3, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), 1),  # slices of one parity have fewer rows
    (16, 64, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 1),  # a run of pixels is one row with padding at both ends
    (16, 64, (14, 7), (5, 5), (1, 1), (2, 2), (1, 1), 1),
    (16, 64, (7, 14), (3, 3), (1, 1), (0, 2), (1, 1), 1),
    (16, 64, (7, 14), (3, 3), (1, 1), (6, 1), (3, 1), 1),  # some output rows see only padding
    (16, 64, (5, 7, 14), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
    (16, 64, (5, 12), (2, 2), (2, 2), (0, 0), (1, 1), 1),  # read without a copy
    (16, 64, (6, 28), (3, 3), (2, 2), (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize(("dtype", "is_channels_last"), [(wg.float32, False), (wg.float32, True), (wg.float64, False)])
@pytest.mark.parametrize("layer", [Layer(*layer) for layer in LAYERS])
def test_layers_with_many_channels(layer: Layer, dtype: Any, is_channels_last: bool) -> None:
    """Check forward and both gradients of common layers, whose schedules use runs of pixels or vectors of channels."""
    geometry = layer.stride, layer.padding, layer.dilation, layer.groups
    x = eighths(2, layer.in_channels, *layer.size)
    w = eighths(layer.out_channels, layer.in_channels // layer.groups, *layer.kernel)
    expected = convolution(x, w, None, *geometry)
    images = channels_last(x, dtype) if is_channels_last else wg.tensor(x, dtype=dtype)
    images.requires_grad_(True)
    weight = wg.tensor(w, dtype=dtype, requires_grad=True)
    output = forward_api(len(layer.size))[0](images, weight, None, *geometry)
    assert_equal(output, expected)
    grad = eighths(*expected.shape)
    grad_input, grad_weight = wg.autograd.grad(output, (images, weight), wg.tensor(grad, dtype=dtype))
    assert_equal(grad_input, convolution_input(grad, w, layer.size, *geometry))
    assert_equal(grad_weight, convolution_weight(x, grad, layer.kernel, *geometry))


@pytest.mark.parametrize("size", [(32, 16), (16, 6, 16), (30, 21)])
def test_rows_are_padded_a_few_at_a_time(size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check forward and the input gradient where padded rows are copied in chunks.

    Sizes are 2-D and 3-D, with row lengths that are multiples of a run of pixels, or not.
    """
    dims = len(size)
    float32_bytes, channels, rows = 4, 16, 8  # room for eight padded rows of 2-D images
    monkeypatch.setattr(convolution_cpu, "_WINDOW_BYTES", float32_bytes * channels * (size[-1] + 2) * rows)
    call, _ = forward_api(dims)
    ones = (1,) * dims
    x, w, b = eighths(2, 16, *size), eighths(32, 16, *(3,) * dims), eighths(32)
    images, weight, bias = (wg.tensor(a, dtype=wg.float32) for a in (x, w, b))
    expected = convolution(x, w, b, ones, ones, ones, 1)
    # Also with channels last and every other row of an image, where columns are not adjacent in memory.
    strided = channels_last(np.repeat(x, 2, axis=2))[:, :, ::2]
    for batch in (images, strided):
        assert_equal(call(batch, weight, bias, 1, 1), expected)
    second_weight = eighths(16, 32, *(3,) * dims)
    zero_images = wg.zeros(2, 32, *size, requires_grad=True)
    (grad_input,) = wg.autograd.grad(
        call(zero_images, wg.tensor(second_weight, dtype=wg.float32), None, 1, 1), zero_images, images
    )
    assert_equal(grad_input, convolution_input(x, second_weight, size, ones, ones, ones, 1))


def test_rows_shorter_than_a_tile_have_memory_behind_their_window() -> None:
    """A tile of `channels` reads all its pixels where rows are shorter: behind the last plane of the copy, too."""
    cpu = wg.device("cpu")
    image, weight = (meta(dtypes.float32, shape, None, cpu) for shape in ((3, 32, 2, 2), (32, 32, 3, 3)))
    planned = planner("custom")(
        Request(registry["convolution"], (image, weight, None), ((2, 2), (1, 1), (1, 1), 1), cpu)
    )
    step = planned.steps[-1]
    defines = dict(step.instance.defines)
    if step.instance.entry != "convolution_channels" or defines["FILL"] != "1":
        pytest.skip("this processor's vectors take another schedule")
    geometry = struct.unpack(f"@{len(step.geometry) // 8}q", step.geometry)
    image_elements = geometry[15]  # `image` of the kernel's Geometry
    pixels, stride, shared_taps = (int(defines[name]) for name in ("PIXELS", "STEP", "WIDE"))
    elements = prod(step.global_size) * image_elements + (pixels - 1) * stride + shared_taps
    assert planned.scratch[-1] >= elements * 4


def test_groups_of_one_input_channel() -> None:
    """Rows have at least one vector. A row's last vector and the last group of outputs overlap the ones before."""
    x, w, b = eighths(3, 2, 9, 37), eighths(26, 1, 3, 3), eighths(26)
    images, weight, bias = (wg.tensor(a, dtype=wg.float32) for a in (x, w, b))
    for stride in (1, 2):
        expected = convolution(x, w, b, (stride, stride), (1, 1), (1, 1), 2)
        assert_equal(F.conv2d(images, weight, bias, stride, 1, groups=2), expected)


def test_flipped_columns() -> None:
    """Columns of the input have a negative stride."""
    x, w = eighths(3, 1, 9, 37), eighths(3, 1, 2, 1)
    expected = convolution(x[..., ::-1], w, None, (1, 1), (0, 0), (2, 1), 1)
    images, weight = (wg.tensor(a, dtype=wg.float32) for a in (x, w))
    assert_equal(F.conv2d(images.flip(3), weight, dilation=(2, 1)), expected)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "dilation"),
    [
        ((14, 14), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((14, 14), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((7, 5), (5, 5), (2, 2), (2, 2), (1, 1)),
        ((1, 3), (2, 3), (1, 2), (1, 1), (1, 1)),  # an image of fewer elements than a vector has
        ((6, 15), (3, 3), (3, 1), (2, 3), (2, 1)),
        # The zeros that neighbouring rows of the gradient share are wider than a vector.
        ((5, 17), (1, 7), (1, 1), (0, 1), (1, 3)),
        ((9, 31), (1, 7), (1, 2), (0, 0), (1, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_short_rows_of_single_channels(
    dtype: str, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> None:
    """Check depthwise convolutions whose rows are shorter than a vector, and both gradients."""
    geometry = (stride, padding, dilation, 3)
    x, w = (RNG.integers(-3, 4, n).astype(dtype) for n in ((2, 3, *size), (3, 1, *kernel)))
    images, weight = (wg.tensor(a, requires_grad=True) for a in (x, w))
    output = F.conv2d(images, weight, None, *geometry)
    expected = convolution(x, w, None, *geometry)
    assert_equal(output, expected)
    grad = RNG.integers(-3, 4, expected.shape).astype(dtype)
    output.backward(wg.tensor(grad))
    assert_equal(images.grad, convolution_input(grad, w, size, *geometry))
    assert_equal(weight.grad, convolution_weight(x, grad, kernel, *geometry))


@pytest.mark.parametrize("width", [5, 14, 20])
def test_infinity_reaches_the_weights_that_see_it(width: int) -> None:
    """A weight of a depthwise convolution has no gradient from elements beside the row that it multiplies."""
    x = wg.zeros(1, 1, 6, width)
    x[0, 0, 3, 0] = float("inf")
    weight = wg.ones(1, 1, 3, 3, requires_grad=True)
    F.conv2d(x, weight, padding=1).backward(wg.ones(1, 1, 6, width))
    expected = np.zeros((1, 1, 3, 3))
    expected[..., :2] = np.inf  # the first column is left of every output that the third one multiplies
    assert_equal(weight.grad, expected)


def test_inputs_that_no_window_sees() -> None:
    """The gradient of such an input is zero. Here all windows see only the padding beside the single column."""
    x = wg.ones(1, 3, 4, 1, requires_grad=True)
    y = F.conv2d(x, wg.ones(20, 3, 1, 1), stride=2, padding=1)
    assert y.shape == (1, 20, 3, 2)
    y.sum().backward()
    assert_equal(x.grad, np.zeros((1, 3, 4, 1)))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_layers_pad_by_mode(mode: str) -> None:
    """A layer with a padding mode is a layer without padding on the input that `numpy.pad` pads."""
    numpy_modes = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    x = eighths(2, 3, 5, 6)
    for padding, sides in (((1, 2), ((1, 1), (2, 2))), ("same", ((0, 1), (1, 1)))):
        layer = nn.Conv2d(3, 4, (2, 3), padding=padding, padding_mode=mode, bias=False)
        layer.weight.data.copy_(wg.tensor(w := eighths(4, 3, 2, 3), dtype=wg.float32))
        padded = np.pad(x, ((0, 0), (0, 0), *sides), numpy_modes[mode])  # type: ignore[call-overload]
        assert_equal(layer(wg.tensor(x, dtype=wg.float32)), convolution(padded, w, None, (1, 1), (0, 0), (1, 1), 1))
        assert f"padding_mode={mode}" in repr(layer)


def test_grids_of_triton_are_flat() -> None:
    """Grids are one-dimensional: CUDA limits the second and third axis to 65535, and groups or tiles may be more."""
    pytest.importorskip("triton")
    target_device = planning_device("sm_90")
    for channels, groups in ((70000, 70000), (70000 * 64, 1)):  # more than 65535 groups; as many tiles of channels
        weight = meta(dtypes.float32, (channels, 1, 1, 1), None, target_device)
        image, result = (meta(dtypes.float32, (1, n, 1, 1), None, target_device) for n in (groups, channels))
        geometry = ((1, 1), (0, 0), (1, 1), groups)
        for op, operands, statics in (
            ("convolution", (image, weight, None), geometry),
            ("convolution_input", (result, weight), ((1, 1), *geometry)),
            ("convolution_weight", (image, result), ((1, 1), *geometry)),
        ):
            for step in planner("custom")(Request(registry[op], operands, statics, target_device)).steps:
                assert len(step.global_size) == 1
                assert step.global_size[0] < 2**31


def test_weight_gradient_of_1x1_kernels_in_bfloat16() -> None:
    """The weight gradient is one matrix product per image, summed over images; here every partial sum is exact."""
    x, grad = (RNG.integers(-3, 4, (2, channels, 3, 5)).astype(np.float32) for channels in (4, 8))
    images = wg.tensor(x, dtype=wg.bfloat16)
    weight = wg.zeros(8, 4, 1, 1, dtype=wg.bfloat16, requires_grad=True)
    F.conv2d(images, weight).backward(wg.tensor(grad, dtype=wg.bfloat16))
    assert_equal(weight.grad[:, :, 0, 0].float(), np.einsum("noyx,niyx->oi", grad, x))


def test_layer_reprs() -> None:
    assert repr(nn.Conv3d(2, 4, (1, 2, 3), padding=1, groups=2, bias=False)) == (
        "Conv3d(2, 4, kernel_size=(1, 2, 3), stride=(1, 1, 1), padding=(1, 1, 1), groups=2, bias=False)"
    )
    assert repr(nn.ConvTranspose1d(2, 4, 3, 2, 1, 1, dilation=2)) == (
        "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), output_padding=(1,))"
    )
    assert "padding=same" in repr(nn.Conv1d(2, 2, 1, padding="same"))
    assert nn.ConvTranspose3d(4, 2, 1).weight.shape == (4, 2, 1, 1, 1)


SMALL_IMAGE = wg.ones(1, 1, 2, 2)
IMAGE = wg.ones(1, 3, 4, 4)
KERNEL = wg.ones(2, 3, 3, 3)
TRANSPOSED_KERNEL = wg.ones(3, 2, 3, 3)
# Wrong calls and a pattern of the message, by the builtin exception that PyTorch raises.
FAULTS: dict[type, dict[str, tuple[Any, str]]] = {
    RuntimeError: {
        "a small input": (lambda: F.conv2d(SMALL_IMAGE, wg.ones(1, 1, 3, 3)), r"padded input has \[2, 2\]"),
        "channels": (lambda: F.conv2d(IMAGE, wg.ones(2, 2, 3, 3)), "takes 2 channels; the input"),
        "groups": (lambda: F.conv2d(IMAGE, wg.ones(2, 1, 3, 3), groups=3), "into 3 groups"),
        "no groups": (lambda: F.conv2d(IMAGE, KERNEL, groups=0), "at least 1"),
        "bias": (lambda: F.conv2d(IMAGE, KERNEL, wg.ones(3)), r"shape \[2\], not \[3\]"),
        "dimensions": (lambda: F.conv2d(wg.ones(4, 4), KERNEL), "3 or 4 dimensions"),
        "weight": (lambda: F.conv1d(wg.ones(3, 4), KERNEL), "weight must have 3 dimensions"),
        "stride": (lambda: F.conv2d(IMAGE, KERNEL, stride=0), "stride must be at least 1"),
        "strides": (lambda: F.conv2d(IMAGE, KERNEL, stride=(1, 1, 1)), "2 of them"),
        "padding": (lambda: F.conv2d(IMAGE, KERNEL, padding=-1), "padding must be at least 0"),
        "padding word": (lambda: F.conv2d(IMAGE, KERNEL, padding="full"), "'same' or 'valid'"),
        "same with strides": (lambda: F.conv2d(IMAGE, KERNEL, padding="same", stride=2), "stride of 1"),
        "dtypes": (lambda: F.conv2d(IMAGE, KERNEL.double()), "one dtype"),
        "no pixels": (lambda: F.conv2d(wg.ones(1, 3, 0, 4), KERNEL, padding=2), "only the batch"),
        "no taps": (lambda: F.conv2d(IMAGE, wg.ones(2, 3, 0, 3)), "must not have size 0"),
        "output_padding": (
            lambda: F.conv_transpose2d(IMAGE, TRANSPOSED_KERNEL, output_padding=1),
            "smaller than either",
        ),
        "transposed channels": (lambda: F.conv_transpose2d(IMAGE, KERNEL), "takes 2 channels"),
        "a small result": (lambda: F.conv_transpose2d(IMAGE, TRANSPOSED_KERNEL, padding=5), r"the size \[-4, -4\]"),
    },
    TypeError: {
        "a fraction": (lambda: F.conv2d(IMAGE, KERNEL, stride=1.5), "stride must be an int"),
        "no tensor": (lambda: F.conv2d(1, KERNEL), "input must be a tensor"),
        "padding word, transposed": (
            lambda: F.conv_transpose2d(IMAGE, TRANSPOSED_KERNEL, padding="same"),
            "padding must be an int",
        ),
    },
    ValueError: {
        "layer groups": (lambda: nn.Conv2d(3, 4, 3, groups=2), "into 2 groups"),
        "layer padding": (lambda: nn.Conv2d(3, 4, 3, padding="full"), "'same' or 'valid'"),
        "layer same": (lambda: nn.Conv2d(3, 4, 3, 2, "same"), "stride of 1"),
        "layer mode": (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "circular"),
        "layer transposed mode": (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "'zeros'"),
    },
}


@pytest.mark.parametrize(
    ("builtin", "fault"), [(builtin, fault) for builtin, cases in FAULTS.items() for fault in cases]
)
def test_errors(builtin: type[Exception], fault: str) -> None:
    call, message = FAULTS[builtin][fault]
    with pytest.raises(errors.WeftgradError, match=message) as caught:
        call()
    assert isinstance(caught.value, builtin)
