"""Check small functions that PyTorch has under names of their own: losses of `torch`, in-place forms, factories."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import weftgrad as wg
from weftgrad import nn
from weftgrad.nn import functional as F
from weftgrad.runtime.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(0)


def random_tensor(*shape: int, low: float = -1, high: float = 1) -> wg.Tensor:
    return wg.tensor(RNG.uniform(low, high, shape).astype(np.float32))


SIGNS = wg.tensor([1.0, -1.0, 1.0, -1.0])
NUMBERS = wg.tensor([0.5, 0.2, 3.0, 4.0])
LOSSES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "binary_cross_entropy_with_logits": ((NUMBERS, (SIGNS + 1) / 2, NUMBERS), {"pos_weight": wg.tensor([2.0])}),
    "kl_div": ((-NUMBERS, NUMBERS / 8), {"log_target": False}),
    "hinge_embedding_loss": ((NUMBERS, SIGNS, 2.0), {}),
    "margin_ranking_loss": ((NUMBERS, NUMBERS.flip(0), SIGNS, 0.25), {}),
    "poisson_nll_loss": ((NUMBERS, wg.tensor([1.0, 4.0, 3.0, 2.0]), False, True), {"eps": 1e-3}),
}
"""Arguments that the losses of `torch` and of `torch.nn.functional` have in common."""


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_torch_take_a_number_as_reduction(name: str) -> None:
    arguments, options = LOSSES[name]
    function = getattr(wg, name)
    losses = function(*arguments, reduction=0, **options).numpy()
    assert losses.shape == (4,)
    assert function(*arguments, reduction=1, **options).item() == pytest.approx(losses.mean(), rel=1e-6)
    assert function(*arguments, reduction=2, **options).item() == pytest.approx(losses.sum(), rel=1e-6)
    assert losses.tolist() == getattr(F, name)(*arguments, reduction="none", **options).tolist()
    with pytest.raises(ArgumentError, match="reduction is 0"):
        function(*arguments, reduction=3, **options)


def test_losses_of_vectors_and_sequences() -> None:
    a, b, c = (random_tensor(4, 3) for _ in range(3))
    assert wg.cosine_embedding_loss(a, b, SIGNS, 0.1, 2).item() == F.cosine_embedding_loss(
        a, b, SIGNS, 0.1, reduction="sum"
    ).item()  # fmt: skip
    triplets = wg.triplet_margin_loss(a, b, c, 2.0, 1, 1e-6, True, 0)
    assert triplets.tolist() == F.triplet_margin_loss(a, b, c, 2.0, 1, 1e-6, True, reduction="none").tolist()
    scores = random_tensor(5, 2, 3).log_softmax(-1)
    labels = wg.tensor([[1, 2], [2, 1]])
    losses = wg.ctc_loss(scores, labels, [5, 4], [2, 1], reduction=0)
    probabilities = scores.exp().numpy().astype(np.float64)
    for sample, (steps, word) in enumerate([(5, (1, 2)), (4, (2,))]):
        total = 0.0
        for path in itertools.product(range(3), repeat=steps):
            collapsed = tuple(label for label, _ in itertools.groupby(path) if label)
            if collapsed == word:
                total += math.prod(probabilities[t, sample, label] for t, label in enumerate(path))
        assert losses[sample].item() == pytest.approx(-math.log(total), rel=1e-5)


ANGLES = np.array([-0.9, 0.25, 0.5])
IN_PLACE: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
    "arccos_": (ANGLES, (), np.arccos(ANGLES)),
    "arccosh_": (ANGLES + 3, (), np.arccosh(ANGLES + 3)),
    "arcsin_": (ANGLES, (), np.arcsin(ANGLES)),
    "arcsinh_": (ANGLES, (), np.arcsinh(ANGLES)),
    "arctan_": (ANGLES, (), np.arctan(ANGLES)),
    "arctanh_": (ANGLES, (), np.arctanh(ANGLES)),
    "deg2rad_": (ANGLES * 90, (), np.deg2rad(ANGLES * 90)),
    "rad2deg_": (ANGLES, (), np.rad2deg(ANGLES)),
    "fix_": (ANGLES * 7, (), np.trunc(ANGLES * 7)),
    "negative_": (ANGLES, (), -ANGLES),
    "ldexp_": (ANGLES, (wg.tensor([1, 2, -1]),), np.ldexp(ANGLES, [1, 2, -1])),
    "logit_": (ANGLES, (0.1,), np.log(np.array([0.1, 0.25, 0.5]) / np.array([0.9, 0.75, 0.5]))),
    "nan_to_num_": (np.array([np.nan, np.inf, -np.inf]), (7.0, 8.0, 9.0), [7, 8, 9]),
    "addmv_": (ANGLES, (wg.eye(3, dtype=wg.float64), wg.ones(3, dtype=wg.float64)), ANGLES + 1),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_functions_change_their_first_operand(name: str) -> None:
    values, arguments, expected = IN_PLACE[name]
    x = wg.tensor(values)
    assert getattr(wg, name)(x, *arguments) is x
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_as_strided_in_place_changes_the_view() -> None:
    x = wg.arange(6)
    memory = x.data_ptr()
    assert wg.as_strided_(x, (2, 2), (1, 3), 1) is x
    assert x.tolist() == [[1, 4], [2, 5]]
    assert x.data_ptr() == memory + 8
    with pytest.raises(ShapeError):
        x.as_strided_((100,), (1,))


def test_range_includes_its_end() -> None:
    assert wg.range(1, 3).tolist() == [1, 2, 3]
    assert wg.range(1, 3).dtype is wg.float32
    assert wg.range(0, 1, 0.25, dtype=wg.float64).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert wg.range(5, 0, -2, dtype=wg.int64).tolist() == [5, 3, 1]
    for arguments in ((0, 3, 0), (0, 3, -1)):
        with pytest.raises(ArgumentError, match="do not lead from"):
            wg.range(*arguments)


@pytest.mark.parametrize("beta", [0.0, 5.0, 200.0])
def test_kaiser_window(beta: float) -> None:
    """I0(200) is larger than a float can be; the window is not."""
    symmetric = wg.kaiser_window(9, False, beta, dtype=wg.float64).numpy()
    np.testing.assert_allclose(symmetric, np.kaiser(9, beta), rtol=1e-10, atol=1e-30)
    np.testing.assert_allclose(wg.kaiser_window(8, True, beta).numpy(), np.kaiser(9, beta)[:8], rtol=1e-4, atol=1e-7)
    assert wg.kaiser_window(1).tolist() == [1]
    assert wg.kaiser_window(0).tolist() == []
    with pytest.raises(DTypeError):
        wg.kaiser_window(3, dtype=wg.int64)


def test_factories_with_strides() -> None:
    assert wg.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == (3, 1, 6)
    with pytest.raises(ShapeError, match="each dimension"):
        wg.empty_permuted((2, 3), (0, 0))
    x = wg.ones(1, dtype=wg.float64).new_empty_strided((2, 3), (1, 2))
    assert (x.stride(), x.dtype) == ((1, 2), wg.float64)


DISTRIBUTIONS: dict[str, tuple[Callable[[wg.Tensor], wg.Tensor], Any]] = {
    "cauchy": (lambda x: x.cauchy_(2.0, 0.5), stats.cauchy(2.0, 0.5)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.75), stats.lognorm(0.75, scale=math.exp(0.5))),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_have_their_distribution(name: str) -> None:
    fill, distribution = DISTRIBUTIONS[name]
    wg.manual_seed(0)
    samples = fill(wg.empty(40_000)).numpy()
    assert stats.kstest(samples, distribution.cdf).pvalue > 1e-3
    assert fill(wg.empty(8, dtype=wg.float16)).dtype is wg.float16
    with pytest.raises(DTypeError):
        fill(wg.empty(3, dtype=wg.int64))


@pytest.mark.parametrize("dtype", [wg.int64, wg.float32])
def test_geometric_samples(dtype: wg.dtype) -> None:
    wg.manual_seed(0)
    samples = wg.empty(40_000, dtype=dtype).geometric_(0.3).numpy()
    counts = np.bincount(samples.astype(int), minlength=6)
    expected = stats.geom(0.3).pmf(np.arange(1, 6)) * len(samples)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:6], expected, atol=5 * np.sqrt(expected.max()))
    with pytest.raises(ArgumentError):
        wg.empty(2).geometric_(1.0)


def test_dense_tensors_answer_questions_about_sparse_ones() -> None:
    x = wg.ones(2, 3)
    assert (x.dense_dim(), x.sparse_dim()) == (2, 0)
    assert x.to_dense() is x
    assert x.to_dense(wg.float64).dtype is wg.float64
    assert x.is_set_to(x.view(2, 3))
    assert not x.is_set_to(x.clone())
    assert not x.is_set_to(x[:1])


def test_anomaly_settings() -> None:
    assert not wg.is_anomaly_enabled()
    with wg.autograd.detect_anomaly(check_nan=False):
        assert wg.is_anomaly_enabled()
        assert not wg.is_anomaly_check_nan_enabled()
    wg.set_anomaly_enabled(True)
    assert wg.is_anomaly_enabled()
    wg.set_anomaly_enabled(False)
    assert not wg.is_anomaly_enabled()


def test_the_default_dtype_by_a_legacy_class() -> None:
    try:
        wg.set_default_tensor_type("torch.DoubleTensor")
        assert wg.ones(1).dtype is wg.float64
        with pytest.raises(DTypeError):
            wg.set_default_tensor_type(wg.LongTensor)
    finally:
        wg.set_default_tensor_type(wg.FloatTensor)
    assert wg.ones(1).dtype is wg.float32


@pytest.mark.parametrize("dtype", [wg.float32, wg.bfloat16, wg.int64, wg.uint8, wg.bool])
def test_make_tensor(dtype: wg.dtype) -> None:
    x = wg.testing.make_tensor(40, 50, dtype=dtype, device=None)
    low, high = {wg.uint8: (0, 9), wg.bool: (0, 1)}.get(dtype, (-9, 9))
    assert x.min().item() >= low
    assert x.max().item() <= high
    assert len(set(x.flatten().tolist())) > high - low
    gaps = wg.testing.make_tensor((4, 5), dtype=dtype, device=None, noncontiguous=True, exclude_zero=True)
    assert (gaps.shape, gaps.is_contiguous()) == ((4, 5), False)
    assert bool((gaps != 0).all())
    with pytest.raises(ArgumentError):
        wg.testing.make_tensor(2, dtype=dtype, device=None, low=3, high=3)


def test_assert_allclose_ignores_dtypes() -> None:
    wg.testing.assert_allclose(wg.tensor([1, 2]), wg.tensor([1.0, 2.0]))
    with pytest.raises(AssertionError):
        wg.testing.assert_allclose(wg.tensor([1.0]), wg.tensor([1.1]))


def test_weights_of_convolutions_change_their_format() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 3), nn.Conv3d(3, 4, 2), nn.Linear(2, 2))
    weights = [p.detach().clone() for p in model.parameters()]
    first = model[0].weight
    assert nn.utils.convert_conv2d_weight_memory_format(model, wg.channels_last) is model
    assert model[0].weight is first
    assert first.stride() == (27, 1, 9, 3)
    assert model[1].weight.stride() == (18, 1, 6, 2)
    assert model[2].weight.is_contiguous()
    nn.utils.convert_conv3d_weight_memory_format(model, wg.channels_last_3d)
    assert model[2].weight.is_contiguous(memory_format=wg.channels_last_3d)
    assert all(bool((p == w).all()) for p, w in zip(model.parameters(), weights, strict=True))
    with pytest.raises(ShapeError):
        nn.utils.convert_conv2d_weight_memory_format(model, wg.channels_last_3d)


def test_powers_of_matrices() -> None:
    matrix = np.array([[1.0, 1.0], [0.5, 2.0]])
    np.testing.assert_allclose(
        wg.linalg.matrix_power(wg.tensor(matrix), 5).numpy(), np.linalg.matrix_power(matrix, 5), rtol=1e-12
    )


def test_isclose_compares_bools_and_refuses_negative_tolerances() -> None:
    x, y = wg.tensor([True, False]), wg.tensor([True, True])
    assert wg.isclose(x, y).tolist() == [True, False]
    assert wg.allclose(x, x)
    for tolerances in ({"rtol": -1.0}, {"atol": -1.0}):
        with pytest.raises(ArgumentError, match=r"^isclose: rtol and atol must not be negative"):
            wg.isclose(wg.ones(1), wg.ones(1), **tolerances)


@pytest.mark.parametrize("name", ["is_nonzero", "isneginf", "isposinf", "isreal", "nan_to_num"])
def test_functions_of_one_tensor_refuse_numbers_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{name}: takes tensors, not float"):
        getattr(wg, name)(0.5)


def test_is_same_size_refuses_lists() -> None:
    with pytest.raises(ArgumentError, match=r"^is_same_size: takes tensors, not list"):
        wg.is_same_size([1], wg.ones(1))


def test_isreal_is_a_method_and_true_for_nan() -> None:
    result = wg.tensor([1.0, math.nan]).isreal()
    assert result.dtype is wg.bool
    assert result.tolist() == [True, True]
