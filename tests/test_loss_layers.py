"""Check layers and functions of losses against NumPy formulas."""

import numpy as np
import pytest
from softmax_formula import softmax

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad import nn

RNG = np.random.default_rng(0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


A, B = RNG.standard_normal((5, 7)) * 2, RNG.standard_normal((5, 7)) * 2
P, T = RNG.uniform(0.05, 0.95, (5, 7)), RNG.integers(0, 2, (5, 7)).astype(float)

LOSSES = {
    "mse": (nn.MSELoss, A, B, lambda x, y: (x - y) ** 2),
    "l1": (nn.L1Loss, A, B, lambda x, y: abs(x - y)),
    "smooth l1": (
        lambda **k: nn.SmoothL1Loss(beta=0.7, **k),
        A,
        B,
        lambda x, y: np.where(abs(x - y) < 0.7, (x - y) ** 2 / 1.4, abs(x - y) - 0.35),
    ),
    "huber": (
        lambda **k: nn.HuberLoss(delta=0.7, **k),
        A,
        B,
        lambda x, y: np.where(abs(x - y) < 0.7, (x - y) ** 2 / 2, 0.7 * (abs(x - y) - 0.35)),
    ),
    "bce": (nn.BCELoss, P, T, lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x))),
    "bce logits": (
        nn.BCEWithLogitsLoss,
        A,
        T,
        lambda x, y: -(y * np.log(sigmoid(x)) + (1 - y) * np.log(1 - sigmoid(x))),
    ),
    "bce logits, weighted": (
        lambda **k: nn.BCEWithLogitsLoss(pos_weight=wg.tensor(P[0]), **k),
        A,
        T,
        lambda x, y: -(P[0] * y * np.log(sigmoid(x)) + (1 - y) * np.log(1 - sigmoid(x))),
    ),
    "kl": (nn.KLDivLoss, np.log(P), softmax(B, 1), lambda x, y: y * (np.log(y) - x)),
    "kl of logarithms": (
        lambda **k: nn.KLDivLoss(log_target=True, **k),
        np.log(P),
        B,
        lambda x, y: np.exp(y) * (y - x),
    ),
    "poisson": (nn.PoissonNLLLoss, A, T, lambda x, y: np.exp(x) - y * x),
    "soft margin": (nn.SoftMarginLoss, A, 2 * T - 1, lambda x, y: np.log1p(np.exp(-x * y))),
    "hinge": (nn.HingeEmbeddingLoss, A, 2 * T - 1, lambda x, y: np.where(y == 1, x, np.maximum(0, 1 - x))),
}


@pytest.mark.filterwarnings("ignore:kl_div")
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_elements(name):
    make, x, y, formula = LOSSES[name]
    expected = formula(x, y)
    for reduction, value in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        tensor = wg.tensor(x, requires_grad=True)
        loss = make(reduction=reduction)(tensor, wg.tensor(y))
        np.testing.assert_allclose(loss.detach().numpy(), value, rtol=1e-10, atol=1e-12)
    loss.backward()  # of the last reduction, `sum`
    direction, step = RNG.standard_normal(x.shape), 1e-6
    slope = (formula(x + step * direction, y) - formula(x - step * direction, y)).sum() / (2 * step)
    np.testing.assert_allclose((tensor.grad.numpy() * direction).sum(), slope, rtol=1e-5)


def test_losses_stay_finite():
    logits = wg.tensor([-200.0, 200.0, 0.0], requires_grad=True)
    F.binary_cross_entropy_with_logits(logits, wg.tensor([1.0, 0.0, 1.0])).backward()
    assert np.isfinite(logits.grad.numpy()).all()
    probabilities = wg.tensor([0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(probabilities, wg.tensor([1.0, 0.0]))
    assert loss.item() == 100
    loss.backward()
    assert np.isfinite(probabilities.grad.numpy()).all()


def cross_entropy(x, y, weight, ignore, smoothing, reduction):
    """Return cross entropy for logits `(N, C, L)` and targets `(N, L)`, by PyTorch's definition."""
    logs = np.log(softmax(x, 1))
    losses, weights = np.zeros(y.shape), np.zeros(y.shape)
    for i in np.ndindex(*y.shape):
        if y[i] != ignore:
            row = logs[(i[0], slice(None), *i[1:])]
            weights[i] = weight[y[i]]
            losses[i] = -(1 - smoothing) * weight[y[i]] * row[y[i]] - smoothing / len(row) * (weight * row).sum()
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / weights.sum()}[reduction]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy(weighted, smoothing, reduction):
    x, y = RNG.standard_normal((4, 6, 3)) * 3, RNG.integers(0, 6, (4, 3))
    y[1, 1] = y[2, 0] = -100
    weight = RNG.uniform(0.5, 2, 6) if weighted else np.ones(6)
    tensor = wg.tensor(x, requires_grad=True)
    weight_tensor = wg.tensor(weight) if weighted else None
    loss = F.cross_entropy(tensor, wg.tensor(y), weight_tensor, label_smoothing=smoothing, reduction=reduction)
    expected = cross_entropy(x, y, weight, -100, smoothing, reduction)
    np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    loss.sum().backward()
    direction, step = RNG.standard_normal(x.shape), 1e-6
    losses = [np.sum(cross_entropy(x + s * step * direction, y, weight, -100, smoothing, reduction)) for s in (1, -1)]
    np.testing.assert_allclose(
        (tensor.grad.numpy() * direction).sum(), (losses[0] - losses[1]) / (2 * step), rtol=1e-5, atol=1e-8
    )
    if not smoothing:
        loss_of_logs = F.nll_loss(F.log_softmax(wg.tensor(x), 1), wg.tensor(y), weight_tensor, reduction=reduction)
        np.testing.assert_allclose(loss_of_logs.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_other_forms_and_errors_of_losses():
    x = RNG.standard_normal((4, 6))
    soft = softmax(RNG.standard_normal((4, 6)), 1)
    expected = -(soft * np.log(softmax(x, 1))).sum(1).mean()
    np.testing.assert_allclose(F.cross_entropy(wg.tensor(x), wg.tensor(soft)).item(), expected, rtol=1e-12)
    np.testing.assert_allclose(
        F.cross_entropy(wg.tensor(x[0]), wg.tensor(2)).item(), -np.log(softmax(x[0], 0))[2], rtol=1e-12
    )
    np.testing.assert_allclose(
        F.kl_div(wg.tensor(np.log(soft)), wg.tensor(softmax(x, 1)), reduction="batchmean").item(),
        (softmax(x, 1) * (np.log(softmax(x, 1)) - np.log(soft))).sum() / 4, rtol=1e-10,
    )  # fmt: skip
    for legacy_options, reduction in (
        ({"size_average": False}, "sum"), ({"reduce": False}, "none"), ({"size_average": True}, "mean"),
        ({"reduce": True}, "mean"), ({"size_average": False, "reduce": False}, "none"),
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=f"reduction='{reduction}'"):
            old = F.cross_entropy(wg.tensor(x), wg.tensor([1, 2, 3, 0]), **legacy_options)
        losses = [old, F.cross_entropy(wg.tensor(x), wg.tensor([1, 2, 3, 0]), reduction=reduction)]
        np.testing.assert_array_equal(*[e.numpy() for e in losses])
    with pytest.warns(UserWarning, match=r"target size \(\[3\]\)"):
        assert F.mse_loss(wg.ones(3, 1), wg.ones(3), reduction="none").shape == (3, 3)
    with pytest.raises(ValueError, match=r"must be equal"):
        F.binary_cross_entropy(wg.ones(3, 1), wg.ones(3))
    with pytest.raises(ValueError, match=r"needs a target of shape \[4\]"):
        F.cross_entropy(wg.tensor(x), wg.tensor([[1, 2, 3, 4]]))
    with pytest.raises(ValueError, match="reduction"):
        F.l1_loss(wg.ones(1), wg.ones(1), reduction="average")
    with pytest.raises(TypeError, match="averaging"):
        nn.MSELoss(averaging=True)
