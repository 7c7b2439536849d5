"""Convolution against sums written out in NumPy, its gradients against finite differences, to second order."""

import numpy as np
import pytest

import weftgrad as wg

F = wg.nn.functional
CASES = {
    "plain": ((2, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strides, dilation, groups": ((2, 4, 9, 7), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    "depthwise": ((3, 5, 11, 13), (5, 1, 5, 5), (2, 3), (2, 2), (1, 1), 5),
    "seven by seven": ((1, 3, 20, 33), (7, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "one by one": ((2, 8, 6, 6), (16, 8, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "more padding than kernel": ((2, 2, 5, 5), (3, 2, 2, 2), (3, 3), (2, 2), (2, 2), 1),
    "one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), (0, 0), (1, 1), 1),
}


def taps(x, weight, stride, padding, dilation, groups):
    """(output channel, input channel, weight's place, slice of the padded input) of every product."""
    outs, ins, kh, kw = weight.shape
    h, w = (
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, (kh, kw), stride, strict=True)
    )
    for o in range(outs):
        for i in range(ins):
            for ky in range(kh):
                for kx in range(kw):
                    rows = slice(ky * dilation[0], ky * dilation[0] + (h - 1) * stride[0] + 1, stride[0])
                    columns = slice(kx * dilation[1], kx * dilation[1] + (w - 1) * stride[1] + 1, stride[1])
                    yield (o, i, ky, kx), (slice(None), o // (outs // groups) * ins + i, rows, columns), (h, w)


def padded(x, padding):
    return np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))


def forward(x, weight, bias, *geometry):
    wide = padded(x, geometry[1])
    out = None
    for place, where, size in taps(x, weight, *geometry):
        if out is None:
            out = np.zeros((len(x), len(weight), *size)) + bias[:, None, None]
        out[:, place[0]] += weight[place] * wide[where]
    return out


def backward(x, weight, grad, *geometry):
    wide = padded(x, geometry[1])
    to_input, to_weight = np.zeros_like(wide), np.zeros_like(weight)
    for place, where, _ in taps(x, weight, *geometry):
        to_weight[place] = (grad[:, place[0]] * wide[where]).sum()
        to_input[where] += weight[place] * grad[:, place[0]]
    (py, px), (h, w) = geometry[1], x.shape[2:]
    return to_input[:, :, py : py + h, px : px + w], to_weight, grad.sum((0, 2, 3))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forward_and_gradients(case, dtype):
    shape, kernel, *geometry = CASES[case]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s) for s in (shape, kernel, kernel[:1])]
    x, weight, bias = (wg.tensor(a, dtype=getattr(wg, dtype), requires_grad=True) for a in arrays)
    out = F.conv2d(x, weight, bias, *geometry)
    expected = forward(*arrays, *geometry)
    grad = rng.standard_normal(expected.shape)
    out.backward(wg.tensor(grad, dtype=getattr(wg, dtype)))
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    found = [out.detach(), x.grad, weight.grad, bias.grad]
    for one, other in zip(found, [expected, *backward(*arrays[:2], grad, *geometry)], strict=True):
        assert np.abs(one.numpy() - other).max() <= tolerance * max(np.abs(other).max(), 1)


def test_second_derivatives_agree_with_differences():
    shape, kernel, *geometry = (2, 2, 5, 4), (2, 1, 2, 3), (2, 1), (1, 1), (1, 1), 2
    rng = np.random.default_rng(2)
    x, weight = rng.standard_normal(shape), rng.standard_normal(kernel)
    directions = [rng.standard_normal(a.shape) for a in (x, weight)]

    def gradients(a, b):
        """Of a sum of cubes, so that second derivatives go through both operands."""
        out = forward(a, b, np.zeros(2), *geometry)
        return backward(a, b, 3 * out**2, *geometry)[:2]

    tensors = [wg.tensor(a, requires_grad=True) for a in (x, weight)]
    out = F.conv2d(*tensors, None, *geometry)
    first = wg.autograd.grad((out * out * out).sum(), tensors, create_graph=True)
    for found, expected in zip(first, gradients(x, weight), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    total = sum((g * wg.tensor(d)).sum() for g, d in zip(first, directions, strict=True))
    second = wg.autograd.grad(total, tensors)
    step = 1e-5
    for position, found in enumerate(second):
        estimate = np.zeros(found.shape)
        for index in np.ndindex(*found.shape):
            values = []
            for sign in (1, -1):
                moved = [x.copy(), weight.copy()]
                moved[position][index] += sign * step
                values.append(sum((g * d).sum() for g, d in zip(gradients(*moved), directions, strict=True)))
            estimate[index] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(found.numpy(), estimate, rtol=1e-5, atol=1e-5)


def test_any_strides_and_half():
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((2, 6, 7, 3)), rng.standard_normal((3, 3, 4, 3))
    found = F.conv2d(wg.tensor(x).permute(0, 3, 1, 2), wg.tensor(weight).permute(2, 1, 3, 0))
    expected = forward(x.transpose(0, 3, 1, 2), weight.transpose(2, 1, 3, 0), np.zeros(4), (1, 1), (0, 0), (1, 1), 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
    for dtype in (wg.float16, wg.bfloat16):
        half = F.conv2d(
            wg.tensor(x, dtype=dtype).permute(0, 3, 1, 2), wg.tensor(weight, dtype=dtype).permute(2, 1, 3, 0)
        )
        assert half.dtype is dtype
        assert np.abs(half.float().numpy() - expected).max() < 0.1
    grown = F.conv2d(wg.ones(1, 1, 3, 3, requires_grad=True), wg.ones(1, 1, 2, 2))
    grown.sum().backward()  # an expanded gradient


def test_other_forms():
    rng = np.random.default_rng(4)
    x, weight = rng.standard_normal((2, 3, 9)), rng.standard_normal((4, 3, 3))
    expected = forward(x[:, :, None], weight[:, :, None], np.zeros(4), (1, 2), (0, 1), (1, 1), 1)[:, :, 0]
    np.testing.assert_allclose(
        F.conv1d(wg.tensor(x), wg.tensor(weight), stride=2, padding=1).numpy(), expected, rtol=1e-12, atol=1e-12
    )
    image, kernel = wg.tensor(rng.standard_normal((3, 6, 7))), wg.tensor(rng.standard_normal((2, 3, 3, 4)))
    assert F.conv2d(image, kernel).shape == (2, 4, 4)
    assert F.conv2d(image, kernel, padding="same").shape == (2, 6, 7)
    # the transpose: <conv(x), y> = <x, transposed(y)>
    a, b = wg.tensor(rng.standard_normal((2, 3, 7, 8))), wg.tensor(rng.standard_normal((4, 3, 3, 2)))
    y = F.conv2d(a, b, stride=2, padding=1)
    z = wg.tensor(rng.standard_normal(tuple(y.shape)))
    back = F.conv_transpose2d(z, b, stride=2, padding=1, output_padding=(0, 0))
    cut = a[:, :, : back.shape[2], : back.shape[3]]
    same = F.conv2d(cut, b, stride=2, padding=1)
    np.testing.assert_allclose((same * z).sum().item(), (cut * back).sum().item(), rtol=1e-12)
    assert wg.nn.ConvTranspose2d(3, 5, 3, stride=2, output_padding=1)(wg.randn(2, 3, 4, 4)).shape == (2, 5, 10, 10)


def test_errors_name_the_shapes():
    with pytest.raises(ValueError, match=r"padded input has \[2, 2\]"):
        F.conv2d(wg.ones(1, 1, 2, 2), wg.ones(1, 1, 3, 3))
    with pytest.raises(ValueError, match="takes 2 channels; the input"):
        F.conv2d(wg.ones(1, 3, 4, 4), wg.ones(2, 2, 3, 3))
    with pytest.raises(ValueError, match=r"bias must have shape \[2\], not \[3\]"):
        F.conv2d(wg.ones(1, 3, 4, 4), wg.ones(2, 3, 3, 3), wg.ones(3))
    with pytest.raises(ValueError, match="3 or 4 dimensions"):
        F.conv2d(wg.ones(4, 4), wg.ones(2, 3, 3, 3))
    with pytest.raises(ValueError, match="stride"):
        F.conv2d(wg.ones(1, 3, 4, 4), wg.ones(2, 3, 3, 3), stride=0)
