"""Check results at the borders: NaN, infinities, zeros, empty tensors, numbers outside a dtype's range.

The expected values are PyTorch's (2.13) where they follow from the formula, else NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fuzz_reference import cast

import weftgrad as wg
import weftgrad.nn.functional as F

DEVICES = ("cpu", "opencl:0")
inf, nan = math.inf, math.nan


# Dtypes ---------------------------------------------------------------------------------------------------------------


def test_sign_and_square_of_bool() -> None:
    flags = wg.tensor([True, False])
    assert wg.sign(flags).tolist() == wg.sgn(flags).tolist() == [True, False]
    assert wg.sign(flags).dtype is wg.bool
    squares = flags.square()
    assert squares.dtype is wg.square(flags).dtype is wg.int64
    assert squares.tolist() == [1, 0]
    assert wg.square(wg.tensor([2, 3], dtype=wg.int8)).dtype is wg.int8


@pytest.mark.parametrize("device", DEVICES)
def test_any_and_all_keep_uint8(device: str) -> None:
    masks = wg.tensor([[3, 0], [1, 2]], dtype=wg.uint8, device=device)
    for result, expected in (
        (masks.any(), 1), (masks.all(), 0), (masks.any(0), [1, 1]), (masks.all(1), [0, 1]),
        (wg.all(masks, 1, keepdim=True), [[0], [1]]), (wg.any(masks[:, :0]), 0), (wg.all(masks[:, :0], 1), [1, 1]),
    ):  # fmt: skip
        assert result.dtype is wg.uint8
        assert result.tolist() == expected
    assert masks.to(wg.int8).any(0).dtype is masks.bool().all(0).dtype is wg.bool
    assert wg.any(masks, 0, out=wg.empty(2, dtype=wg.bool, device=device)).tolist() == [True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_wrap_in_integer_arithmetic(device: str) -> None:
    x = wg.tensor([7, 200], dtype=wg.uint8, device=device)
    small = wg.tensor([7, 100], dtype=wg.int8, device=device)
    results = [
        (x + 300, [51, 244]), (x - 300, [219, 156]), (300 - x, [37, 100]), (x * 300, [52, 96]), (x + -3, [4, 197]),
        (x * (2**40 + 3), [21, 88]), (x + 2**63, [7, 200]), (small + 300, [51, -112]), (small * -300, [-52, -48]),
        (wg.fmod(x, -3), [7, 200]), (x % 300, [7, 24]), (wg.fmod(x, 300), [7, 24]), (x // -3, [0, 0]),
        (wg.div(x, -3, rounding_mode="trunc"), [0, 0]), (x & -3, [5, 200]), (x | -3, [255, 253]), (x ^ -3, [250, 53]),
        (x << -1, [0, 0]), (wg.tensor([7], dtype=wg.int32, device=device) + 2**40, [7]),
        (wg.tensor([7], device=device) + 2**63, [7 - 2**63]),
    ]  # fmt: skip
    for index, (result, expected) in enumerate(results):
        assert result.tolist() == expected, index
    assert x.clone().add_(-3).tolist() == [4, 197]
    y = wg.tensor([7, 253], dtype=wg.uint8, device=device)
    comparisons = [y == -3, y != 300, y >= -3, y > -3, y < -3, y <= 300]
    expected_masks = [[False, True], [True, True], [False, True], [False, False], [True, False], [True, False]]
    assert [mask.tolist() for mask in comparisons] == expected_masks


def test_numbers_that_no_tensor_can_hold_raise() -> None:
    x = wg.tensor([7, 200], dtype=wg.uint8)
    for call in (
        lambda: x + 2**64, lambda: x.clamp(max=300), lambda: x.clamp(min=-3), lambda: x**300, lambda: x**-1,
        lambda: wg.where(x > 8, x, 300), lambda: x.fill_(300), lambda: x.fill_(-256),
        lambda: wg.tensor([300], dtype=wg.uint8), lambda: wg.tensor([-129], dtype=wg.int8),
        lambda: x.masked_fill(x > 8, 300), lambda: wg.addcmul(x, x, x, value=300),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="does not fit"):
            call()


def test_numbers_beyond_the_dtype_wrap_in_isin() -> None:
    x = wg.tensor([7, 253, 44, 0], dtype=wg.uint8)
    for number, wrapped in ((-3, 253), (300, 44), (65536, 0), (44, 44), (2**40 + 7, 7)):
        expected = [value == wrapped for value in (7, 253, 44, 0)]
        assert wg.isin(x, number).tolist() == expected
        assert wg.isin(x, number, invert=True).tolist() == [not flag for flag in expected]
        assert wg.isin(number, x).item() is True
    signed = wg.tensor([-56, 5], dtype=wg.int8)
    assert wg.isin(signed, 200).tolist() == [True, False]
    assert wg.isin(signed, -251).tolist() == [False, True]
    assert wg.isin(wg.tensor([2], dtype=wg.int32), 2**32 + 2).tolist() == [True]


@pytest.mark.parametrize("device", DEVICES)
def test_bools_to_the_power_of_bools(device: str) -> None:
    flags = wg.tensor([True, False], device=device)
    for result, expected in (
        (flags**True, [True, False]), (flags**False, [True, True]), (wg.pow(flags, True), [True, False]),
        (flags.clone().pow_(False), [True, True]),
    ):  # fmt: skip
        assert result.dtype is wg.bool
        assert result.tolist() == expected
    assert (flags**2).dtype is wg.int64
    assert (flags**0.5).dtype is wg.float32


def test_linalg_vander_refuses_bool() -> None:
    with pytest.raises(RuntimeError, match="does not take bool"):
        wg.linalg.vander(wg.tensor([True, False]))
    assert wg.vander(wg.tensor([True, False])).tolist() == [[1, 1], [0, 1]]


def test_negative_numbers_wrap_in_new_uint8_tensors() -> None:
    x = wg.tensor([7, 200], dtype=wg.uint8)
    mask = wg.tensor([True, False])
    assert wg.tensor([-3, -255], dtype=wg.uint8).tolist() == [253, 1]
    assert wg.full((1,), -3, dtype=wg.uint8).tolist() == wg.full_like(x[:1], -3).tolist() == [253]
    assert x.masked_fill(mask, -3).tolist() == x.index_fill(0, wg.tensor([0]), -3).tolist() == [253, 200]
    assert x.scatter(0, wg.tensor([0]), -3).tolist() == [253, 200]
    assert x.fill_(-1).tolist() == [255, 255]


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("values", [[1, 2, 3.5], [1000.5, 1001, 1003], [60000, -60000, 3.5], [0.1, 0.1, 0.1]])
def test_deviations_of_half_types_are_rounded_once(values: list[float], device: str) -> None:
    for dtype in (wg.float16, wg.bfloat16):
        x = wg.tensor(values, dtype=dtype, device=device)
        exact = np.array(x.double().tolist())
        for result, expected in (
            (wg.std(x), exact.std(ddof=1)), (wg.var(x), exact.var(ddof=1)), (wg.std_mean(x)[1], exact.mean()),
            (wg.std(x, correction=0), exact.std()),
        ):  # fmt: skip
            assert result.dtype is dtype
            assert result.item() == wg.tensor(float(expected), dtype=dtype).item()


def test_half_deviations_have_gradients_of_their_dtype() -> None:
    x = wg.tensor([1.0, 2.0, 4.0], dtype=wg.float16, requires_grad=True)
    (grad,) = wg.autograd.grad(x.std(), [x])
    expected = (np.array([1, 2, 4]) - 7 / 3) / (2 * np.std([1, 2, 4], ddof=1))
    assert grad.dtype is wg.float16
    np.testing.assert_allclose(grad.tolist(), expected, rtol=2e-3)


def test_large_arguments_of_hyperbolic_functions() -> None:
    x = np.array([88.0, 89.0, -89.0, 90.0, 5.0], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(wg.sinh(wg.tensor(x)).numpy(), np.sinh(x), rtol=1e-6)
        np.testing.assert_allclose(wg.cosh(wg.tensor(x)).numpy(), np.cosh(x), rtol=1e-6)


def test_median_of_expanded_uint8() -> None:
    column = wg.tensor([[3], [5]], dtype=wg.uint8).expand(2, 4)
    assert column.median().item() == 3
    assert column.median(1).values.tolist() == [3, 5]
    assert column.median(0).values.tolist() == [3, 3, 3, 3]


def test_products_of_many_elements() -> None:
    assert wg.prod(wg.tensor([3] * 100)).item() == pow(3, 100, 2**64) - 2**64 * (pow(3, 100, 2**64) >> 63)
    x = wg.tensor([1.01] * 100, dtype=wg.bfloat16)
    assert wg.prod(x).item() == wg.tensor(x.double().prod().item(), dtype=wg.bfloat16).item()
    products = wg.tensor([1.1, 1.2, 1.3, 1.4, 1.5], dtype=wg.bfloat16)
    expected = wg.tensor(np.cumprod(products.double().numpy()).tolist(), dtype=wg.bfloat16)
    assert products.cumprod(0).tolist() == expected.tolist()


# Empty tensors and arguments ------------------------------------------------------------------------------------------


def test_cumulative_products_of_no_elements_have_a_gradient() -> None:
    for shape in ((0,), (2, 0), (0, 3)):
        x = wg.zeros(shape, requires_grad=True)
        assert wg.autograd.grad(x.cumprod(-1).sum(), [x])[0].shape == shape


@pytest.mark.parametrize("device", DEVICES)
def test_reductions_along_no_dimension(device: str) -> None:
    """An empty tuple means all dimensions, but none for `any` and `all`."""
    x = wg.tensor([[0.0, 1.0, nan], [-2.0, 0.0, 0.0]], device=device)
    for values in (x, x.T, x[:, ::2], x.bool(), x.nan_to_num().to(wg.int32), x.new_ones(70, 3)[1:], x[0, 1], x[:0]):
        for reduce in (wg.any, wg.all):
            for dim in ((), []):
                for keepdim in (False, True):
                    result = reduce(values, dim, keepdim)
                    assert result.dtype is wg.bool
                    assert result.tolist() == values.ne(0).tolist()
    masks = wg.tensor([3, 0], dtype=wg.uint8, device=device)
    assert masks.any(()).dtype is wg.uint8
    assert masks.all(dim=()).tolist() == [1, 0]
    x = x.nan_to_num()
    reductions: tuple[Callable[..., wg.Tensor], ...] = (
        wg.sum, wg.mean, wg.amax, wg.amin, wg.std, wg.var, wg.logsumexp, wg.nansum, wg.norm,
    )  # fmt: skip
    for reduce in reductions:
        result = reduce(x, dim=(), keepdim=True)
        assert result.shape == (1, 1)
        assert result.item() == pytest.approx(reduce(x, dim=(0, 1)).item(), rel=1e-6)
        assert reduce(x, dim=[]).shape == ()


def test_gather_with_an_empty_index_of_any_shape() -> None:
    x = wg.tensor([[1.0, 2.0]])
    for shape in ((0,), (0, 2, 3), (1, 0), (0, 9), (9, 0)):
        assert x.gather(0, wg.empty(shape, dtype=wg.int64)).shape == shape
        assert x.gather(1, wg.empty(shape, dtype=wg.int64)).shape == shape
        gathered = x.requires_grad_().gather(0, wg.empty(shape, dtype=wg.int64))
        assert wg.autograd.grad(gathered.sum(), [x])[0].tolist() == [[0, 0]]
        x = x.detach()
    out = wg.empty(0)
    assert wg.gather(x, 1, wg.empty(0, dtype=wg.int64), out=out) is out
    with pytest.raises(IndexError):
        x.gather(2, wg.empty(0, dtype=wg.int64))


def test_unfold_a_0d_tensor() -> None:
    x = wg.tensor(3.0, requires_grad=True)
    assert x.unfold(0, 1, 1).tolist() == [3]
    assert x.unfold(0, 0, 1).shape == (0,)
    assert wg.autograd.grad(x.unfold(0, 1, 1).sum() * 2, [x])[0].item() == 2
    assert wg.autograd.grad(x.unfold(0, 0, 1).sum(), [x])[0].item() == 0
    with pytest.raises(RuntimeError, match="size 2, step 1 do not fit dimension 0 of size 1"):
        x.unfold(0, 2, 1)


def test_fractional_pooling_of_an_empty_batch() -> None:
    x = wg.zeros(0, 2, 6, 6, requires_grad=True)
    maxima, indices = F.fractional_max_pool2d(x, 2, output_size=3, return_indices=True)
    assert maxima.shape == indices.shape == (0, 2, 3, 3)
    assert indices.dtype is wg.int64
    assert wg.autograd.grad(maxima.sum(), [x])[0].shape == x.shape
    assert F.fractional_max_pool3d(wg.zeros(0, 1, 5, 6, 7), 2, output_ratio=0.5).shape == (0, 1, 2, 3, 3)
    with pytest.raises(RuntimeError, match="at least one channel"):
        F.fractional_max_pool2d(wg.zeros(1, 0, 6, 6), 2, output_size=3)


def test_fractional_pooling_rounds_the_distance_of_windows_to_bfloat16() -> None:
    samples = np.arange(64) / 64
    x = wg.arange(10, dtype=wg.bfloat16).reshape(1, 1, 10, 1).expand(1, 64, 10, 3)
    pairs = np.stack([np.full(64, 0.5), samples], -1)[None]
    maxima = F.fractional_max_pool2d(x, (3, 1), output_size=(6, 3), _random_samples=wg.tensor(pairs, dtype=wg.bfloat16))
    distance, steps = cast(7 / 5, "bfloat16"), np.arange(5)
    ends, begins = (
        np.trunc(cast(cast(i + samples[:, None], "bfloat16") * distance, "bfloat16")) for i in (steps, np.zeros(5))
    )
    np.testing.assert_array_equal(maxima[0, :, :5, 0].float().numpy(), ends - begins + 2)


@pytest.mark.parametrize("dtype", [wg.float16, wg.float32, wg.float64])
def test_transposed_convolutions_with_a_result_of_size_0(dtype: wg.DType) -> None:
    for shape, kernel, padding, size in (
        ((2, 3, 1), (2,), 1, (0,)),
        ((3, 1), (2,), 1, (0,)),
        ((2, 3, 1, 4), (2, 2), (1, 0), (0, 5)),
        ((1, 3, 1, 1, 1), (2, 2, 2), 1, (0, 0, 0)),
    ):
        rank = len(kernel)
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        operands = [wg.ones(s, dtype=dtype, requires_grad=True) for s in (shape, (3, 4, *kernel), (4,))]
        result = convolve(*operands, padding=padding)
        assert result.shape == (*shape[: -rank - 1], 4, *size)
        assert result.dtype is dtype
        for operand, grad in zip(operands, wg.autograd.grad(result.sum(), operands), strict=True):
            assert grad.tolist() == wg.zeros_like(operand).tolist()
    assert F.conv_transpose2d(
        wg.ones(2, 3, 1, 1), wg.ones(3, 4, 1, 1), stride=2, padding=1, output_padding=1
    ).shape == (2, 4, 0, 0)  # fmt: skip
    with pytest.raises(RuntimeError, match=r"size \[-1\]"):
        F.conv_transpose1d(wg.ones(2, 3, 1), wg.ones(3, 4, 1), padding=1)


def test_powers_of_a_0d_tensor() -> None:
    assert wg.linalg.vander(wg.tensor(2), N=4).tolist() == [[1, 2, 4, 8]]
    for x, count in ((wg.tensor(2), None), (wg.tensor([2.0]), 1)):
        with pytest.raises(RuntimeError, match="N must be 2 or more"):
            wg.linalg.vander(x, N=count)


def test_masks_of_attention_broadcast_from_fewer_dimensions() -> None:
    wg.manual_seed(0)
    query, key, value = (wg.rand(2, 3, 4, 8) for _ in range(3))
    column_mask = wg.tensor([0.0, -inf, 1.0, 2.0])
    expected = F.scaled_dot_product_attention(query, key, value, column_mask.expand(4, 4))
    for mask in (column_mask, column_mask.expand(1, 4)):
        result = F.scaled_dot_product_attention(query, key, value, mask)
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)
    plain = F.scaled_dot_product_attention(query, key, value)
    for mask in (wg.tensor(True), wg.tensor(0.5)):
        result = F.scaled_dot_product_attention(query, key, value, mask)
        np.testing.assert_allclose(result.numpy(), plain.numpy(), rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_convolutions_and_batch_norm_of_no_channels(device: str) -> None:
    """The sum over no channels is 0, so that the bias remains, as in `linear`. PyTorch loses the output channels."""
    for convolve, layer, shape in ((F.conv1d, wg.nn.Conv1d, (2, 0, 4)), (F.conv2d, wg.nn.Conv2d, (2, 0, 4, 3))):
        x = wg.ones(shape, device=device, requires_grad=True)
        weight = wg.ones(3, 0, *(2,) * (len(shape) - 2), device=device)
        bias = wg.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
        result = convolve(x, weight, bias)
        assert result.shape == (2, 3, *(n - 1 for n in shape[2:]))
        assert (result == bias.reshape(3, *(1,) * (len(shape) - 2))).all()
        assert wg.autograd.grad(result.sum(), [bias, x])[0].tolist() == [result.numel() // 3] * 3
        module = layer(0, 3, 2, device=device)
        assert module.bias is not None
        assert module.bias.tolist() == [0, 0, 0]
        assert not module(x).any()
        normed = (
            wg.nn.BatchNorm1d(0, device=device)(x) if len(shape) == 3 else F.batch_norm(x, None, None, training=True)
        )
        assert normed.shape == shape


def test_triplet_loss_with_a_distance_of_the_user() -> None:
    anchor, positive, negative = (wg.tensor(x) for x in ([[1.0, 2.0]], [[1.0, 0.0]], [[1.0, 1.0]]))
    loss = F.triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=lambda a, b: (a - b).abs().sum(-1)
    )
    assert loss.item() == 2


def test_embedding_bag_in_both_orders() -> None:
    table, indices = wg.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), wg.tensor([0, 2, 1, 1])
    offsets, weights = wg.tensor([0, 2]), wg.tensor([1.0, 2.0, 3.0, 4.0])
    assert F.embedding_bag(table, indices, offsets).tolist() == F.embedding_bag(indices, table, offsets).tolist()
    bags = F.embedding_bag(indices, table, offsets, None, 2.0, False, "sum", False, weights)
    assert bags.tolist() == [[11, 14], [21, 28]]


def test_arguments_of_numpy_and_other_libraries() -> None:
    boundaries = wg.tensor([0.0, 1.0, 2.0])
    assert wg.bucketize(np.float32(1), boundaries).item() == wg.searchsorted(boundaries, np.float64(1)).item() == 1
    scalar = wg.scalar_tensor(3, dtype=wg.float64, requires_grad=True)
    assert scalar.requires_grad
    assert scalar.dtype is wg.float64

    class Foreign:
        """A tensor of another library: NumPy converts it, and its `dtype` is none of NumPy's."""

        dtype = "float64"

        def __init__(self, values: Any):
            self.values = np.array(values)

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return self.values.astype(dtype or self.values.dtype)

        def __float__(self) -> float:
            return float(self.values)

    assert wg.tensor(Foreign([1.5])).dtype is wg.as_tensor(Foreign([1.5])).dtype is wg.float64
    assert wg.tensor([Foreign(1.5), 2.0]).dtype is wg.float64
    assert wg.tensor(Foreign(np.float16([1.5]))).dtype is wg.float16
    assert wg.tensor(Foreign([1, 2])).dtype is wg.int64


def test_dimensions_that_max_does_not_take() -> None:
    x = wg.ones(2, 2)
    for reduce in (x.max, x.min):
        for dims in ((0, 1), [0, 1]):
            with pytest.raises(TypeError, match=r"one dimension.*amax|one dimension.*amin"):
                reduce(dims)  # type: ignore[call-overload]


def test_messages_name_the_remedy_for_a_tensor_in_place_of_a_number() -> None:
    with pytest.raises(TypeError, match=r"alpha must be a number, not a tensor; pass alpha.item\(\)"):
        F.elu(wg.ones(1), wg.tensor(2.0))  # type: ignore[arg-type]


def test_dimensions_of_a_tensor_without_any() -> None:
    x = wg.tensor(2.0)
    for dim in (0, -1):
        assert wg.softmax(x, dim).item() == 1
        assert wg.nn.functional.normalize(x, dim=dim).item() == 1
    for function in (wg.softmax, wg.log_softmax, lambda t, dim: wg.nn.functional.normalize(t, dim=dim)):
        for dim in (1, -2):
            with pytest.raises(IndexError, match="out of range"):
                function(x, dim)


def test_rows_with_nan_have_no_norm() -> None:
    """The largest of NaN and eps is NaN, so that broken rows are not scaled up by 1 / eps."""
    x = wg.tensor([[3.0, 4.0], [math.nan, 1.0], [0.0, 0.0], [math.inf, 1.0]], requires_grad=True)
    result = wg.nn.functional.normalize(x)
    np.testing.assert_allclose(result.detach().numpy(), [[0.6, 0.8], [np.nan] * 2, [0, 0], [np.nan, 0]], rtol=1e-6)
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.isnan().any(1).tolist() == [False, True, False, True]


def test_flatten_and_isreal_of_a_tensor_without_dimensions() -> None:
    x = wg.tensor(2.0)
    assert x.flatten(-1, 0).shape == (1,)
    for dims in ((1,), (0, -2)):
        with pytest.raises(IndexError, match="out of range"):
            x.flatten(*dims)
    assert x.isreal().item() is True


def test_divergence_of_targets_that_are_no_probabilities() -> None:
    """As in PyTorch, a negative target gives NaN, and 0 gives 0."""
    log_probability = wg.tensor([-1.0, -1.0, -1.0], requires_grad=True)
    loss = wg.nn.functional.kl_div(log_probability, wg.tensor([0.5, 0.0, -0.5]), reduction="none")
    np.testing.assert_allclose(loss.detach().numpy(), [0.5 * np.log(0.5) + 0.5, 0, np.nan], rtol=1e-6)
    loss.sum().backward()
    assert log_probability.grad is not None
    np.testing.assert_allclose(log_probability.grad.numpy(), [-0.5, 0, 0.5])
