"""Check pooling, unpooling, fold and unfold through the public API: arguments, shapes, special values, layers, errors.

The generated suite (`op_window.py`) checks values over windows of every kind.
"""

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn
from weftgrad.codegen.loader import load_text
from weftgrad.codegen.model import SpecErrors
from weftgrad.nn import functional as F

IMAGE = np.random.default_rng(0).permutation(2 * 3 * 6 * 7).reshape(2, 3, 6, 7).astype(np.float64)


def image(grad=False):
    return wg.tensor(IMAGE, requires_grad=grad)


def blocks(x, size):
    """Return the full `size` by `size` blocks of x, as `(..., H // size, W // size, size * size)`."""
    h, w = (n // size * size for n in x.shape[-2:])
    cut = x[..., :h, :w].reshape(*x.shape[:-2], h // size, size, w // size, size)
    return cut.swapaxes(-3, -2).reshape(*cut.shape[:-4], h // size, w // size, size * size)


# Shapes and arguments


@pytest.mark.parametrize(
    ("n", "kernel", "stride", "padding", "dilation", "ceil_mode", "expected"),
    [
        (8, 2, None, 0, 1, False, 4), (9, 2, None, 0, 1, False, 4), (9, 2, None, 0, 1, True, 5),
        (5, 3, 3, 1, 1, True, 2), (6, 2, 3, 0, 1, True, 2), (7, 3, 2, 1, 1, False, 4), (10, 3, 1, 1, 3, False, 6),
        (4, 2, 4, 1, 1, True, 2), (3, 2, 3, 1, 1, True, 2), (1, 1, 1, 0, 1, False, 1),
    ],
)  # fmt: skip
def test_output_sizes(n, kernel, stride, padding, dilation, ceil_mode, expected):
    """The expected sizes are those of PyTorch 2.13."""
    output = F.max_pool1d(wg.zeros(1, 2, n), kernel, stride, padding, dilation, ceil_mode)
    assert output.shape == (1, 2, expected)
    if dilation == 1:
        assert F.avg_pool1d(wg.zeros(1, 2, n), kernel, stride, padding, ceil_mode).shape == (1, 2, expected)


def test_sizes_are_integers_or_one_per_dimension():
    x = image()
    pooled = F.max_pool2d(x, 2).numpy()
    np.testing.assert_array_equal(pooled, blocks(IMAGE, 2).max(-1))
    for kernel, stride in (([2, 2], None), ((2,), (2, 2)), (np.int64(2), []), (2, (2,))):
        np.testing.assert_array_equal(F.max_pool2d(x, kernel, stride).numpy(), pooled)
    row_means = F.avg_pool2d(x, (1, 7)).numpy()
    np.testing.assert_allclose(row_means[..., 0], IMAGE.mean(-1), rtol=1e-14)
    np.testing.assert_array_equal(F.max_pool2d(x[1], 2).numpy(), pooled[1])
    assert F.max_pool2d(x[:0], 2).shape == (0, 3, 3, 3)


def test_ceil_mode_and_divisors():
    x = wg.tensor(np.arange(1.0, 6.0)).reshape(1, 5)
    assert F.avg_pool1d(x, 3, 2, 1).tolist() == [[1.0, 3.0, 3.0]]
    assert F.avg_pool1d(x, 3, 2, 1, count_include_pad=False).tolist() == [[1.5, 3.0, 4.5]]
    assert F.avg_pool1d(x, 2, 2, 0, True).tolist() == [[1.5, 3.5, 5.0]]  # elements beyond the padding do not count
    planes = x.reshape(1, 1, 5)
    assert F.avg_pool2d(planes, (1, 3), (1, 2), (0, 1), divisor_override=2).tolist() == [[[1.5, 4.5, 4.5]]]
    integers = wg.tensor([[-7, 2, 4, -8, 1, 1]])
    assert F.avg_pool1d(integers, 2).tolist() == [[-2, -2, 1]]  # rounded towards 0
    assert F.avg_pool1d(integers, 2).dtype is wg.int64


def test_a_divisor_of_more_than_32_bits():
    x = wg.arange(2 * 70, dtype=wg.float64).reshape(1, 2, 70).requires_grad_()
    output = F.avg_pool2d(x, (2, 3), (1, 1), (0, 1), divisor_override=1 << 40) * 2**40
    padded = np.pad(np.arange(140.0).reshape(2, 70).sum(0), 1)
    assert output.tolist() == [[(padded[:-2] + padded[1:-1] + padded[2:]).tolist()]]
    slopes = [[2.0, *[3.0] * 68, 2.0]] * 2
    assert wg.autograd.grad(output.sum(), x)[0].tolist() == [slopes]


def test_no_window_starts_after_the_input():
    """A window entirely in the padding would be a mean of nothing. As in PyTorch, there is no such window."""
    x = wg.ones(1, 3, dtype=wg.float64, requires_grad=True)
    for count_include_pad, values, slopes in ((True, [0.5, 1.0], [0.5] * 3), (False, [1.0, 1.0], [1.0, 0.5, 0.5])):
        output = F.avg_pool1d(x, 2, 2, 1, True, count_include_pad)
        assert output.tolist() == [values]
        assert wg.autograd.grad(output.sum(), x)[0].tolist() == [slopes]


def test_windows_of_long_rows():
    """The kernel sums down the columns first, a few hundred columns at a time. A window may be wider."""
    x = np.random.default_rng(3).integers(-8, 9, (2, 4, 700)).astype(np.float64)
    for kernel in ((2, 5), (4, 350), (4, 700)):
        y, z = (n // k for n, k in zip(x.shape[1:], kernel, strict=True))
        expected = x.reshape(2, y, kernel[0], z, kernel[1]).sum((2, 4))
        np.testing.assert_array_equal(F.avg_pool2d(wg.tensor(x), kernel, divisor_override=1).numpy(), expected)


# Special values


def test_nan_wins_and_ties_go_to_the_first():
    nan, inf = float("nan"), float("inf")
    x = wg.tensor([[1.0, nan, nan, 2.0], [3.0, 3.0, 1.0, 3.0], [-inf, -inf, -inf, -inf]])
    for values, indices in (F.max_pool1d(x, 4, return_indices=True), wg.adaptive_max_pool1d(x, 1)):
        np.testing.assert_array_equal(values.numpy(), [[nan], [3.0], [-inf]])
        assert indices.tolist() == [[2], [0], [0]]  # the last of several NaN, as in PyTorch
    values, indices = F.max_pool1d(x[2:], 3, 1, 1, return_indices=True)
    assert indices.tolist() == [[0, 0, 1, 2]]
    long_row = wg.tensor(np.where(np.arange(80) % 7 == 3, nan, 1.0)).reshape(1, 80)  # long enough for vectors
    values, indices = F.max_pool1d(long_row, 2, return_indices=True)
    is_nan = np.isnan(long_row.numpy().reshape(40, 2))
    np.testing.assert_array_equal(np.isnan(values.numpy()[0]), is_nan.any(1))
    np.testing.assert_array_equal(indices.numpy()[0], np.arange(40) * 2 + np.where(is_nan.any(1), is_nan.argmax(1), 0))


def test_integers():
    low = np.iinfo(np.int64).min
    x = wg.tensor([[low, low + 1, low, low]])
    values, indices = F.max_pool1d(x, 2, return_indices=True)
    assert values.tolist() == [[low + 1, low]]
    assert indices.tolist() == [[1, 2]]
    assert F.max_pool2d(wg.ones(1, 2, 2, dtype=wg.uint8), 2).dtype is wg.uint8
    assert F.fold(wg.ones(4, 4, dtype=wg.bool), (3, 3), 2).dtype is wg.bool


# Adaptive


def test_adaptive_windows():
    x = image()
    expected = np.empty((2, 3, 4, 3))
    for i in range(4):
        for j in range(3):
            rows, columns = slice(i * 6 // 4, -(-(i + 1) * 6 // 4)), slice(j * 7 // 3, -(-(j + 1) * 7 // 3))
            expected[..., i, j] = IMAGE[..., rows, columns].mean((-1, -2))
    np.testing.assert_allclose(F.adaptive_avg_pool2d(x, (4, 3)).numpy(), expected, rtol=1e-14)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(x, 1).numpy()[..., 0, 0], IMAGE.mean((-1, -2)), rtol=1e-14)
    np.testing.assert_array_equal(F.adaptive_max_pool2d(x, (None, 1)).numpy()[..., 0], IMAGE.max(-1))
    assert F.adaptive_avg_pool2d(x, (None, 3)).shape == (2, 3, 6, 3)
    assert F.adaptive_avg_pool2d(x, 0).shape == (2, 3, 0, 0)
    y = image(True)
    F.adaptive_avg_pool2d(y, (0, 2)).sum().backward()
    assert not y.grad.any()


def test_adaptive_gradients_reach_every_window():
    x = wg.zeros(1, 5, dtype=wg.float64, requires_grad=True)
    F.adaptive_avg_pool1d(x, 3).backward(wg.tensor([[2.0, 3.0, 4.0]], dtype=wg.float64))  # [0, 2), [1, 4), [3, 5)
    assert x.grad.tolist() == [[1.0, 2.0, 1.0, 3.0, 2.0]]


# Gradients


def test_gradients_of_expanded_and_permuted_tensors():
    """The gradient of a sum is one expanded number, and inputs have other strides than their gradients."""
    for name, *sizes in (("max_pool2d", 3, 2, 1), ("avg_pool2d", 3, 2, 1), ("lp_pool2d", 2, 2)):
        grads = []
        for order in ((0, 1, 2, 3), (3, 1, 2, 0)):
            base = wg.tensor(np.ascontiguousarray((IMAGE + 1).transpose(order)), requires_grad=True)
            x = base.permute(*order)
            getattr(F, name)(x, *sizes).sum().backward()
            grads.append(base.grad.permute(*order).numpy())
        np.testing.assert_allclose(*grads, rtol=1e-12)
        assert grads[0].any()


def test_second_derivatives_of_max_pooling():
    x = image(True)
    out = F.max_pool2d(x, 3, 2)
    (first,) = wg.autograd.grad((out**3).sum(), x, create_graph=True)
    (second,) = wg.autograd.grad((first * 0.5).sum(), x)
    marks = np.zeros_like(IMAGE)
    for i in range(2):
        for j in range(3):
            window = IMAGE[..., 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(2, 3, 9)
            for n, c in np.ndindex(2, 3):
                position = window[n, c].argmax()
                marks[n, c, 2 * i + position // 3, 2 * j + position % 3] += 1
    np.testing.assert_allclose(first.detach().numpy(), marks * 3 * IMAGE**2, rtol=1e-14)
    np.testing.assert_allclose(second.numpy(), marks * 3 * IMAGE, rtol=1e-14)


def test_power_means():
    x = wg.tensor(IMAGE + 1)
    for p in (1, 2, 3.5):
        expected = (blocks(IMAGE + 1, 2) ** p).sum(-1) ** (1 / p)
        np.testing.assert_allclose(F.lp_pool2d(x, p, 2).numpy(), expected, rtol=1e-13)
    np.testing.assert_array_equal(F.lp_pool2d(-x, float("inf"), 2).numpy(), blocks(IMAGE + 1, 2).max(-1))
    np.testing.assert_array_equal(F.lp_pool2d(-x, -float("inf"), 2).numpy(), blocks(IMAGE + 1, 2).min(-1))
    np.testing.assert_allclose(F.lp_pool1d(x[0, :, 0], 2, 7).numpy()[:, 0], ((IMAGE[0, :, 0] + 1) ** 2).sum(-1) ** 0.5)


# Unpooling, fold and unfold


def test_unpooling():
    x = image(True)
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    unpooled = F.max_unpool2d(values, indices, 2, output_size=x.shape)
    expected = np.where(np.isin(IMAGE, blocks(IMAGE, 2).max(-1)), IMAGE, 0)
    np.testing.assert_array_equal(unpooled.detach().numpy(), expected)
    seed = np.random.default_rng(1).standard_normal(IMAGE.shape)
    (grad,) = wg.autograd.grad(unpooled, x, wg.tensor(seed), create_graph=True)
    np.testing.assert_array_equal(grad.detach().numpy(), np.where(expected, seed, 0))
    square = F.max_pool2d(x[..., :6], 2, return_indices=True)
    assert F.max_unpool2d(*square, 2).shape == (2, 3, 6, 6)
    assert F.max_unpool2d(*square, 2, output_size=(7, 7)).shape == (2, 3, 7, 7)
    # Overlapping windows may contain the same maximum: it is written once, and every window gets its gradient.
    overlapping = wg.tensor([[5.0, 5.0]], requires_grad=True)
    restored = F.max_unpool1d(overlapping, wg.tensor([[1, 1]]), 2, 1)
    assert restored.tolist() == [[0.0, 5.0, 0.0]]
    restored.sum().backward()
    assert overlapping.grad.tolist() == [[1.0, 1.0]]
    layers = nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2)
    line = wg.tensor([[3.0, 1.0, 2.0, 4.0]])
    assert layers[1](*layers[0](line)).tolist() == [[3.0, 0.0, 0.0, 4.0]]


def test_unfold_gives_the_columns_of_a_convolution():
    x, weight = image(), wg.tensor(np.random.default_rng(2).standard_normal((4, 3, 3, 2)))
    product = weight.reshape(4, -1) @ F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1))
    expected = F.conv2d(x, weight, None, (2, 1), (1, 0), (1, 2))
    np.testing.assert_allclose(product.reshape(*expected.shape).numpy(), expected.numpy(), rtol=1e-12, atol=1e-9)
    folded = F.fold(F.unfold(x, 2, stride=2), (6, 6), 2, stride=2)  # windows that do not overlap
    np.testing.assert_array_equal(folded.numpy(), IMAGE[..., :6])
    np.testing.assert_array_equal(F.fold(F.unfold(x[0], 3), (6, 7), 3).numpy()[:, 3, 3], 9 * IMAGE[0, :, 3, 3])


# Layers

MAX_POOL_REPR = "kernel_size={}, stride={}, padding={}, dilation=1, ceil_mode=False"


@pytest.mark.parametrize(
    ("layer", "shape", "expected", "extra_repr"),
    [
        (nn.MaxPool2d(2), (2, 3, 6, 7), (2, 3, 3, 3), MAX_POOL_REPR.format(2, 2, 0)),
        (nn.MaxPool1d(3, 2, 1), (2, 3, 7), (2, 3, 4), MAX_POOL_REPR.format(3, 2, 1)),
        (nn.MaxPool3d(2, 1), (3, 4, 4, 5), (3, 3, 3, 4), MAX_POOL_REPR.format(2, 1, 0)),
        (nn.AvgPool1d(2), (2, 3, 7), (2, 3, 3), "kernel_size=(2,), stride=(2,), padding=(0,)"),
        (nn.AvgPool2d(3, 2, 1), (2, 3, 6, 7), (2, 3, 3, 4), "kernel_size=3, stride=2, padding=1"),
        (nn.AvgPool3d(2), (1, 3, 4, 4, 4), (1, 3, 2, 2, 2), "kernel_size=2, stride=2, padding=0"),
        (nn.AdaptiveAvgPool1d(3), (2, 5), (2, 3), "output_size=3"),
        (nn.AdaptiveAvgPool2d((None, 3)), (2, 3, 6, 7), (2, 3, 6, 3), "output_size=(None, 3)"),
        (nn.AdaptiveAvgPool3d(1), (2, 3, 2, 3, 4), (2, 3, 1, 1, 1), "output_size=1"),
        (nn.AdaptiveMaxPool1d(3), (2, 3, 5), (2, 3, 3), "output_size=3"),
        (nn.AdaptiveMaxPool2d((2, 1)), (2, 3, 6, 7), (2, 3, 2, 1), "output_size=(2, 1)"),
        (nn.AdaptiveMaxPool3d(2), (2, 4, 4, 4), (2, 2, 2, 2), "output_size=2"),
        (nn.LPPool1d(2, 3), (2, 3, 7), (2, 3, 2), "norm_type=2, kernel_size=3, stride=None, ceil_mode=False"),
        (nn.LPPool2d(2, 3, 1), (2, 3, 6, 7), (2, 3, 4, 5), "norm_type=2, kernel_size=3, stride=1, ceil_mode=False"),
        (nn.LPPool3d(1, 2), (2, 4, 4, 4), (2, 2, 2, 2), "norm_type=1, kernel_size=2, stride=None, ceil_mode=False"),
        (nn.Fold((4, 5), (2, 2)), (1, 12, 12), (1, 3, 4, 5),
         "output_size=(4, 5), kernel_size=(2, 2), dilation=1, padding=0, stride=1"),
        (nn.Unfold(3), (2, 3, 6, 7), (2, 27, 20), "kernel_size=3, dilation=1, padding=0, stride=1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)  # fmt: skip
def test_layers(layer, shape, expected, extra_repr):
    output = layer(wg.ones(*shape))
    assert output.shape == expected
    assert layer.extra_repr() == extra_repr
    if not isinstance(layer, (nn.LPPool1d, nn.LPPool2d, nn.LPPool3d, nn.Fold, nn.AvgPool2d)):
        assert (output == 1).all()


def test_layers_that_return_indices():
    for layer in (nn.MaxPool2d(2, return_indices=True), nn.AdaptiveMaxPool2d(2, return_indices=True)):
        values, indices = layer(image())
        np.testing.assert_array_equal(
            IMAGE.reshape(2, 3, -1)[np.indices(indices.shape)[0], np.indices(indices.shape)[1], indices.numpy()],
            values.numpy(),
        )
    assert repr(nn.MaxUnpool2d(2)) == "MaxUnpool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"


# Errors


@pytest.mark.parametrize(
    ("call", "built_in", "message"),
    [
        (lambda x: F.max_pool2d(x, 2, padding=2), RuntimeError, "padding must be at most half"),
        (lambda x: F.avg_pool2d(x, 9), RuntimeError, r"size \[6, 7\] is too small.*output of size \[0, 0\]"),
        (lambda x: F.max_pool2d(x, 0), RuntimeError, "kernel_size must be greater than zero"),
        (lambda x: F.max_pool2d(x, 2, stride=0), RuntimeError, "stride must be greater than zero"),
        (lambda x: F.max_pool2d(x, 2, dilation=0), RuntimeError, "dilation must be greater than zero"),
        (lambda x: F.avg_pool2d(x, 2, padding=-1), RuntimeError, "padding must not be negative"),
        (lambda x: F.max_pool2d(x, (2, 2, 2)), RuntimeError, r"one integer or 2 of them, not \(2, 2, 2\)"),
        (lambda x: F.max_pool2d(x, 2.5), TypeError, "kernel_size must be an integer"),
        (lambda x: F.max_pool2d(3, 2), TypeError, "takes tensors, not int"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), RuntimeError, "divisor_override must not be zero"),
        (lambda x: F.max_pool2d(x[0, 0], 2), RuntimeError, r"the input has shape \[6, 7\]"),
        (lambda x: F.max_pool2d(x[:, :0], 2), RuntimeError, r"none but N empty; the input has shape \[2, 0, 6, 7\]"),
        (lambda x: F.max_pool1d(x, 2), RuntimeError, "with 1 spatial dimensions"),
        (lambda x: F.avg_pool2d(x.int(), 2), RuntimeError, "takes floating dtypes and int64, not int32"),
        (lambda x: F.max_pool2d(x > 0, 2), RuntimeError, "does not take bool"),
        (lambda x: F.adaptive_avg_pool2d(x.long(), 2), RuntimeError, "does not take int64"),
        (lambda x: F.adaptive_avg_pool2d(x, (3,)), RuntimeError, r"not \(3,\)"),
        (lambda x: F.adaptive_avg_pool2d(x, -1), RuntimeError, "output_size must not be negative"),
        (lambda x: F.adaptive_max_pool2d(x, 2.5), TypeError, "output_size must be an integer"),
        (lambda x: F.unfold(x, 9), RuntimeError, r"no window of \[9, 9\]"),
        (lambda x: F.unfold(x, (3,)), RuntimeError, "one integer or 2 of them"),
        (lambda x: F.fold(wg.ones(2, 13, 16), (5, 5), 2), RuntimeError, "13 rows are no multiple of the 4 elements"),
        (lambda x: F.fold(wg.ones(2, 12, 15), (5, 5), 2), RuntimeError, r"has \[4, 4\] windows of \[2, 2\], not 15"),
        (lambda x: F.fold(wg.ones(12), (5, 5), 2), RuntimeError, r"the input has \[12\]"),
        (lambda x: F.max_unpool2d(x, x.long(), 2), RuntimeError, "index .* is out of range .* 168"),
        (lambda x: F.max_unpool2d(x, x, 2), RuntimeError, "indices must be int64, not float64"),
        (lambda x: F.max_unpool2d(x, x.long()[:1], 2), RuntimeError, r"indices have shape \[1, 3, 6, 7\]"),
        (lambda x: F.max_unpool2d(x, x.long(), 2, output_size=(20, 14)), ValueError, "11 to 13, 13 to 15 pool"),
        (lambda x: F.max_unpool2d(x, x.long(), 2, output_size=(20,)), ValueError, "has 2 or 4 elements, not 1"),
    ],
)
def test_errors(call, built_in, message):
    with pytest.raises(built_in, match=message) as excinfo:
        call(image())
    assert isinstance(excinfo.value, wg.runtime.errors.WeftgradError)


# Specs of the kind `window`

SIGNATURE = "input, size: {0}, kernel: {0} | None, stride: {0}, padding: {0}".format("tuple[int, ...]")
SPEC = """
- op: "window_norm(%s)"
  kind: window
  window: %s
"""
SUM = "{over: windows, identity: 0, map: input * input, combine: a + b, finish: sqrt(acc / n)}"


def test_a_user_op(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(SPEC % (SIGNATURE, SUM))
    output = wg.ops.load(path).window_norm(image(), (3, 3), (2, 2), (2, 2), (0, 0))
    np.testing.assert_allclose(output.numpy(), np.sqrt((blocks(IMAGE, 2) ** 2).mean(-1)), rtol=1e-14)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("over: windows", "over: doors", "unknown walk 'doors' (one of windows, covering, taps)"),
        ("over: windows, ", "", "unknown walk 'None'"),
        ("map: input * input", "map: grad", "unknown name 'grad'"),
        ("map: input * input", "map: input * n", "unknown name 'n'"),  # `n` exists in `finish` only
        ("identity: 0", "identity: wide", "window.identity: unknown name 'wide'"),
        ("combine: a + b, ", "", "window: needs identity, map and combine"),
        ("map: input * input", "map: 1", "parameter 'input' is used by no expression"),
        ("padding: ", "pad: ", "does not take 'pad'"),
        (", stride: tuple[int, ...]", "", "needs the parameter 'stride'"),
        ("(input,", "(input, factor: float,", "a window op has tensor operands"),
    ],
)
def test_wrong_specs(old, new, message):
    text = SPEC % (SIGNATURE, SUM)
    assert old in text
    with pytest.raises(SpecErrors) as excinfo:
        load_text(text.replace(old, new))
    assert message in str(excinfo.value)
