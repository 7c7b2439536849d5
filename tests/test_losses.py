"""Check losses and dropout whose argument handling is Python code against NumPy, and the calls they refuse.

Tensors are float32 of few shapes. The generated suite checks the ops themselves and their derivatives.
"""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from op_ctc import enumerate_alignments

import weftgrad as wg
from weftgrad.runtime import errors

F, nn = wg.nn.functional, wg.nn
RNG = np.random.default_rng(11)
A, B, N = (RNG.standard_normal((4, 5)).astype(np.float32) for _ in range(3))
P = RNG.uniform(0.1, 0.9, (4, 5)).astype(np.float32)
SIGN = RNG.choice([-1.0, 1.0], (4, 5)).astype(np.float32)
Y = np.array([2, 0, 4, 1])
LABELS = np.array([[2, 0, -1, 1, 3], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0], [1, 1, -1, -1, -1]])


def assert_close(actual, expected):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=2e-5, atol=2e-6)


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def multilabel_margin(x, labels):
    losses = []
    for row, targets in zip(x, labels, strict=True):
        end = int(np.argmax(targets < 0)) if (targets < 0).any() else len(targets)
        other_classes = [k for k in range(len(row)) if k not in targets[:end]]
        losses.append(sum(max(0, 1 - (row[y] - row[k])) for y in targets[:end] for k in other_classes) / len(row))
    return np.array(losses)


def test_losses_of_vectors():
    a, b, n, sign = (wg.tensor(v) for v in (A, B, N, SIGN))
    expected = np.where(SIGN[:, 0] == 1, 1 - cosine(A, B), np.maximum(0, cosine(A, B) - 0.2))
    assert_close(F.cosine_embedding_loss(a, b, sign[:, 0], 0.2, reduction="none"), expected)
    assert_close(F.margin_ranking_loss(a, b, sign, 0.5), np.maximum(0, -SIGN * (A - B) + 0.5).mean())
    positive_distance, negative_distance, swapped_distance = (
        np.linalg.norm(u - v + 1e-6, axis=1) for u, v in ((A, B), (A, N), (B, N))
    )
    loss = F.triplet_margin_loss(a, b, n, 2.0, swap=True, reduction="none")
    assert_close(loss, np.maximum(0, positive_distance - np.minimum(negative_distance, swapped_distance) + 2))
    assert_close(
        F.triplet_margin_with_distance_loss(a, b, n, margin=2.0),
        np.maximum(0, positive_distance - negative_distance + 2).mean(),
    )


def test_margins_of_classes():
    a, y, labels = (wg.tensor(v) for v in (A, Y, LABELS))
    weight = RNG.uniform(0.5, 2, 5).astype(np.float32)
    margins = np.maximum(0, 0.7 - A[np.arange(4), Y][:, None] + A) * (np.arange(5) != Y[:, None])
    for p in (1, 2):
        assert_close(F.multi_margin_loss(a, y, p, 0.7, reduction="none"), (margins**p).mean(1))
    assert_close(F.multi_margin_loss(a, y, 1, 0.7, wg.tensor(weight)), (margins.mean(1) * weight[Y]).mean())
    assert_close(F.multilabel_margin_loss(a, labels, reduction="none"), multilabel_margin(A, LABELS))
    assert_close(F.multilabel_margin_loss(a[0], labels[0]), multilabel_margin(A[:1], LABELS[:1])[0])
    logs = P * np.log1p(np.exp(-A)) + (1 - P) * np.log1p(np.exp(A))
    assert_close(F.multilabel_soft_margin_loss(a, wg.tensor(P), wg.tensor(weight)), (logs * weight).mean())


def test_likelihoods():
    a, b = wg.tensor(A), wg.tensor(B)
    for var, variance in ((P, P), (P[:, 0], P[:, :1]), (P[:, :1], P[:, :1]), (0.3, 0.3)):
        clamped = np.maximum(variance, 0.4)
        var_tensor = wg.tensor(var) if isinstance(var, np.ndarray) else var
        expected = 0.5 * (np.log(2 * np.pi * clamped) + (A - B) ** 2 / clamped)
        assert_close(F.gaussian_nll_loss(a, b, var_tensor, full=True, eps=0.4, reduction="none"), expected)
    var = wg.tensor(np.array([0.1, 1.0], np.float32), requires_grad=True)
    F.gaussian_nll_loss(
        wg.tensor(np.ones(2, np.float32)), wg.tensor(np.zeros(2, np.float32)), var, eps=0.5, reduction="sum"
    ).backward()
    assert_close(var.grad, [0.5 * (1 / 0.5 - 1 / 0.25), 0.0])  # at and below eps: that at eps
    counts = np.array([0.0, 1.0, 2.0, 7.0], np.float32)
    stirling = np.where(counts > 1, counts * np.log(counts + (counts == 0)) - counts, 0)
    stirling += np.where(counts > 1, np.log(2 * np.pi * np.maximum(counts, 1)) / 2, 0)
    rate = P[:, 0]
    loss = F.poisson_nll_loss(wg.tensor(rate), wg.tensor(counts), False, True, eps=0.1, reduction="none")
    assert_close(loss, rate - counts * np.log(rate + 0.1) + stirling)


def test_weights_and_soft_targets():
    a, b, p = (wg.tensor(v) for v in (A, B, P))
    w = wg.tensor(P)
    assert_close(F.mse_loss(a, b, weight=w), ((A - B) ** 2 * P).sum() / P.sum())
    assert_close(F.l1_loss(a, b, weight=w), (abs(A - B) * P).sum() / P.sum())
    logs = -(P * np.log(P) + (1 - P) * np.log1p(-P))
    assert_close(F.binary_cross_entropy(p, p, wg.tensor(np.arange(5, dtype=np.float32))), (logs * np.arange(5)).mean())
    soft = P / P.sum(1, keepdims=True)
    logits = A - np.log(np.exp(A).sum(1, keepdims=True))
    weight = np.arange(1, 6, dtype=np.float32)
    expected = -((soft * 0.8 + 0.2 / 5) * logits * weight).sum(1).mean()
    assert_close(F.cross_entropy(a, wg.tensor(soft), wg.tensor(weight), label_smoothing=0.2), expected)


def test_what_losses_refuse():
    matrix, vector = wg.ones(2, 3), wg.ones(2)
    cases = [
        (lambda: F.huber_loss(matrix, matrix, delta=0), RuntimeError),
        (lambda: F.l1_loss(matrix, matrix, weight=vector), ValueError),
        (lambda: F.smooth_l1_loss(matrix, matrix, beta=-1), RuntimeError),
        (lambda: F.gaussian_nll_loss(matrix, matrix, -1.0), ValueError),
        (lambda: F.gaussian_nll_loss(matrix, matrix, wg.ones(3)), ValueError),
        (lambda: F.margin_ranking_loss(matrix, vector, vector), RuntimeError),
        (lambda: F.cosine_embedding_loss(matrix, matrix, matrix), RuntimeError),
        (lambda: F.triplet_margin_loss(matrix, matrix, matrix, 0), ValueError),
        (lambda: F.triplet_margin_loss(matrix, matrix, vector), RuntimeError),
        (lambda: F.multi_margin_loss(matrix, wg.tensor([0, 1]), p=3), ValueError),
        (lambda: nn.MultiMarginLoss(p=0), ValueError),
        (lambda: F.multi_margin_loss(matrix, wg.tensor([0, 3])), RuntimeError),
        (lambda: F.multilabel_margin_loss(matrix, wg.tensor([[0, 3, 1], [0, 0, -2]])), RuntimeError),
        (lambda: F.cross_entropy(matrix, matrix, ignore_index=0), RuntimeError),
        (lambda: F.cross_entropy(matrix, wg.tensor([0, 1]), label_smoothing=2), RuntimeError),
        (lambda: nn.TripletMarginLoss(margin=0), ValueError),
    ]  # fmt: skip
    for call, builtin in cases:
        with pytest.raises(errors.WeftgradError) as error:
            call()
        assert isinstance(error.value, builtin), error.value
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(matrix, matrix)
    with pytest.warns(FutureWarning, match="NLLLoss"):
        nn.NLLLoss2d()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_binary_cross_entropy_takes_probabilities(dtype):
    half, zeros = (wg.full((2, 2), v, dtype=getattr(wg, dtype), device="cpu") for v in (0.5, 0))
    assert F.binary_cross_entropy(half.t(), zeros).dtype is getattr(wg, dtype)
    for wrong in (1.5, -0.25, float("nan")):
        x = half.clone()
        x[1, 0] = wrong
        with pytest.raises(RuntimeError, match=f"all elements of input must be between 0 and 1, not {wrong}"):
            F.binary_cross_entropy(x.t(), zeros)
        with pytest.raises(RuntimeError, match="of target"):
            F.binary_cross_entropy(half, x)


@pytest.mark.parametrize("layer", [nn.L1Loss, nn.KLDivLoss, nn.BCELoss, nn.CrossEntropyLoss])
def test_a_deprecated_argument_warns_where_the_layer_is_created(layer):
    """It does so however many classes from the layer up to `Loss` have an `__init__`."""
    with pytest.warns(UserWarning, match="reduction='sum'") as warned:
        layer(size_average=False)
    assert linecache.getline(warned[0].filename, warned[0].lineno).strip() == "layer(size_average=False)"


def test_losses_as_modules_keep_their_weights():
    loss = nn.BCEWithLogitsLoss(wg.ones(5), pos_weight=wg.full((5,), 2.0))
    assert list(loss.state_dict()) == ["weight", "pos_weight"]
    assert list(nn.CrossEntropyLoss().state_dict()) == []
    assert str(nn.TripletMarginWithDistanceLoss()).startswith(
        "TripletMarginWithDistanceLoss(\n  (distance_function): Pair"
    )
    with pytest.warns(UserWarning, match="sum"):
        assert nn.MSELoss(size_average=False).reduction == "sum"


def test_dropouts():
    x = RNG.standard_normal((40, 30, 4)).astype(np.float32)
    for module, drops_channels in (
        (nn.Dropout1d(0.4), True),
        (nn.AlphaDropout(0.4), False),
        (nn.FeatureAlphaDropout(0.4), True),
    ):
        leaf = wg.tensor(x, requires_grad=True)
        out = module(leaf)
        out.sum().backward()
        grad, y = leaf.grad.numpy(), out.detach().numpy()
        is_kept = grad != 0
        assert abs(is_kept.mean() - 0.6) < 0.06
        assert drops_channels == (is_kept.all(2) | (~is_kept).all(2)).all()
        if isinstance(module, nn.Dropout1d):
            np.testing.assert_allclose(y, np.where(is_kept, x / 0.6, 0), rtol=1e-6)
        else:  # mean 0 and variance 1 of the input are preserved
            scale, dropped_value = grad[is_kept][0], y[~is_kept][0]
            shift = (y - x * scale)[is_kept][0]  # not exact: these are float32
            np.testing.assert_allclose(
                [0.6 * shift + 0.4 * dropped_value, 0.6 * (scale**2 + shift**2) + 0.4 * dropped_value**2],
                [0, 1],
                atol=1e-6,
            )
        assert module.eval()(leaf) is leaf
    tensor = wg.tensor(x)
    assert F.dropout1d(tensor, 0.4, inplace=True) is tensor
    assert (tensor.numpy() == 0).mean() > 0.3
    assert not F.alpha_dropout(tensor, 1.0, True).numpy().any()
    with pytest.raises(RuntimeError, match="dropout1d"):
        F.dropout1d(wg.ones(2))
    with pytest.warns(UserWarning, match="dropout1d"):
        F.dropout2d(wg.ones(2, 2, 2), 0.0)


def test_activations_in_place_and_drawn():
    x = np.linspace(-3, 3, 24, dtype=np.float32)
    leaf = wg.tensor(x, requires_grad=True)
    out = leaf * 1.0
    assert F.elu_(out, 0.5) is out
    out.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), np.where(x > 0, 1, 0.5 * np.exp(x)), rtol=1e-5)
    assert F.relu6(wg.arange(9)).tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 6]
    assert_close(F.rrelu(wg.tensor(x), 0.1, 0.3), np.where(x > 0, x, 0.2 * x))
    leaf = wg.tensor(-np.ones(3000, np.float32), requires_grad=True)
    output = nn.RReLU(0.1, 0.3)(leaf)
    output.sum().backward()
    assert_close(output, -leaf.grad.numpy())
    assert 0.09999 <= leaf.grad.numpy().min() < 0.102
    assert abs(leaf.grad.numpy().mean() - 0.2) < 0.005
    for call, builtin in (
        (lambda: F.hardtanh(wg.ones(1), 2, 1), ValueError), (lambda: F.celu(wg.ones(1), 0), RuntimeError),
        (lambda: F.softshrink(wg.ones(1), -1), RuntimeError), (lambda: F.rrelu(wg.ones(1), 0.5, 0.1), RuntimeError),
        (lambda: F.prelu(wg.ones(2, 3), wg.ones(2)), RuntimeError), (lambda: F.glu(wg.ones(3)), RuntimeError),
        (lambda: nn.Softmax2d()(wg.ones(2, 2)), ValueError), (lambda: nn.Threshold(1), TypeError),
    ):  # fmt: skip
        with pytest.raises(builtin):
            call()


def test_ctc_of_padded_labels_and_of_labels_in_a_row():
    logits = RNG.standard_normal((5, 3, 3)).astype(np.float32)
    logs = np.array(F.log_softmax(wg.tensor(logits), 2).numpy(), np.float64)
    labels, lengths = ((1, 2), (1, 1), ()), (5, 2, 3)  # the second needs a blank between equal labels: too short
    with np.errstate(divide="ignore"):
        expected = [
            -np.log(enumerate_alignments(logs[:n, i], k, 0)[0])
            for i, (n, k) in enumerate(zip(lengths, labels, strict=True))
        ]
    padded, flat = wg.tensor([[1, 2, 9], [1, 1, -5], [7, 7, 7]]), wg.tensor([1, 2, 1, 1])
    for targets in (padded, flat):
        losses = F.ctc_loss(
            F.log_softmax(wg.tensor(logits), 2), targets, lengths, wg.tensor([2, 2, 0]), reduction="none"
        )
        assert_close(losses, expected)
    leaf = wg.tensor(logits, requires_grad=True)
    loss = nn.CTCLoss(zero_infinity=True)(F.log_softmax(leaf, 2), flat, lengths, (2, 2, 0))
    assert_close(loss, (expected[0] / 2 + expected[2]) / 3)
    loss.backward()
    grad = leaf.grad.numpy()
    assert not grad[:, 1].any()
    assert not grad[3:, 2].any()
    assert np.abs(grad.sum(2)).max() < 1e-6
    label_share = enumerate_alignments(logs[:, 0], labels[0], 0)
    assert_close(leaf.grad[:, 0], (np.exp(logs[:, 0]) - label_share[1] / label_share[0]) / 6)
    grad_of_logits = wg.autograd.grad(
        F.ctc_loss(leaf, flat, lengths, (2, 2, 0), zero_infinity=True), leaf, create_graph=True
    )[0]
    with pytest.raises(RuntimeError, match="no gradient"):
        grad_of_logits.sum().backward()
    zeros = wg.zeros(5, 3, 3)
    for call, builtin in (
        (lambda: F.ctc_loss(zeros, padded, (5, 6, 5), (2, 2, 0)), RuntimeError),
        (lambda: F.ctc_loss(zeros, padded, lengths, (2, 4, 0)), RuntimeError),
        (lambda: F.ctc_loss(zeros, flat, lengths, (2, 2, 1)), RuntimeError),
        (lambda: F.ctc_loss(zeros, padded, lengths, (3, 2, 0)), IndexError),
        (lambda: F.ctc_loss(zeros, padded, 5, 2), TypeError),
        (lambda: F.ctc_loss(zeros, padded, (5.5, 5, 5), (2, 2, 0)), TypeError),
        (lambda: F.ctc_loss(zeros, padded, lengths, (2, 2, 0), blank=3), RuntimeError),
        (lambda: F.ctc_loss(zeros.half(), padded, lengths, (2, 2, 0)), NotImplementedError),
    ):
        with pytest.raises(builtin):
            call()


def test_adaptive_softmax_is_a_distribution():
    module = nn.AdaptiveLogSoftmaxWithLoss(5, 9, [2, 5], 2.0)
    x, y = wg.tensor(A), wg.tensor([0, 8, 3, 6])
    logs = module.log_prob(x)
    assert_close(logs.exp().sum(1), np.ones(4))
    result = module(x, y)
    assert_close(result.output, logs.detach().numpy()[np.arange(4), y.numpy()])
    assert_close(result.loss, -result.output.detach().numpy().mean())
    assert module.predict(x).tolist() == logs.argmax(1).tolist()
    with pytest.raises(ValueError, match="cutoffs"):
        nn.AdaptiveLogSoftmaxWithLoss(5, 9, [5, 2])
    with pytest.raises(RuntimeError):
        module(x, wg.tensor([0, 9, 3, 6]))
