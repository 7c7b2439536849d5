"""Compare losses with PyTorch, if installed: values and gradients in every mode, errors, warnings, state_dict."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
P, Q = RNG.uniform(0.05, 0.95, (4, 5)), RNG.uniform(0.05, 0.95, (4, 5))
S = RNG.choice([-1.0, 1.0], (4, 5))
W, CW = RNG.uniform(0.5, 2, (4, 5)), RNG.uniform(0.5, 2, 5)
Y = RNG.integers(0, 5, 4)
IMAGE, IMAGE_Y = RNG.standard_normal((2, 5, 3, 2)), RNG.integers(0, 5, (2, 3, 2))
SOFT = np.exp(A) / np.exp(A).sum(1, keepdims=True)
SOME_IGNORED = np.where(np.arange(4) == 1, 3, Y)
LABELS = np.array([[2, 0, -1, 1, 3], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0], [1, 1, -1, -1, -1]])
N3, N4 = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
REDUCTIONS = [{"reduction": r} for r in ("none", "mean", "sum")]


def zip_options(**options: Any) -> list[dict[str, Any]]:
    return [dict(zip(options, values, strict=True)) for values in zip(*options.values(), strict=True)]


# (name, inputs, list of options); every case runs with every reduction
CASES: list[tuple[str, tuple[Any, ...], list[dict[str, Any]]]] = [
    ("mse_loss", (A, B), [{}, {"weight": W}]),
    ("l1_loss", (A, B), [{}, {"weight": W}]),
    ("smooth_l1_loss", (A, B), [{}, {"beta": 0.3}, {"beta": 0.0}]),
    ("huber_loss", (A, B), [{}, {"delta": 0.3}, {"weight": W}]),
    ("binary_cross_entropy", (P, Q), [{}, {"weight": W}, {"weight": CW}]),
    ("binary_cross_entropy_with_logits", (A, Q), [
        {}, {"weight": W}, {"pos_weight": CW}, {"weight": CW, "pos_weight": W},
    ]),
    ("kl_div", (np.log(P), Q), [{}]),
    ("kl_div", (np.log(P), np.log(Q)), [{"log_target": True}]),
    ("poisson_nll_loss", (A, P * 6), [{}, {"full": True}]),
    ("poisson_nll_loss", (P, P * 6), [{"log_input": False}, {"log_input": False, "full": True, "eps": 0.1}]),
    ("gaussian_nll_loss", (A, B, P), [{}, {"full": True}, {"eps": 0.5}]),
    ("gaussian_nll_loss", (A, B, P[:, 0]), [{}]),
    ("gaussian_nll_loss", (A, B, P[:, :1]), [{}]),
    ("gaussian_nll_loss", (A, B, 0.7), [{}]),
    ("soft_margin_loss", (A, S), [{}]),
    ("hinge_embedding_loss", (A, S), [{}, {"margin": 0.3}]),
    ("hinge_embedding_loss", (A, np.zeros((4, 5))), [{}]),
    ("margin_ranking_loss", (A, B, S), [{}, {"margin": 0.5}]),
    ("cosine_embedding_loss", (A, B, S[:, 0]), [{}, {"margin": 0.2}]),
    ("cosine_embedding_loss", (A[0], B[0], S[0, 0]), [{}]),
    ("triplet_margin_loss", (A, B, N3), [
        {}, {"margin": 0.3, "p": 1}, {"swap": True, "margin": 2.0}, {"p": 3.0, "eps": 0.1},
    ]),
    ("triplet_margin_with_distance_loss", (A, B, N3), [{}, {"swap": True, "margin": 2.0}]),
    ("nll_loss", (A, Y), [{}, {"weight": CW}, {"ignore_index": int(Y[1])}, {"weight": CW, "ignore_index": int(Y[1])}]),
    ("nll_loss", (IMAGE, IMAGE_Y), [{}, {"weight": CW, "ignore_index": 2}]),
    ("nll_loss", (A[0], Y[0]), [{}]),
    ("cross_entropy", (A, SOME_IGNORED), [
        {}, {"weight": CW}, {"label_smoothing": 0.2}, {"ignore_index": 3},
        {"weight": CW, "label_smoothing": 0.2, "ignore_index": 3},
    ]),
    ("cross_entropy", (IMAGE, IMAGE_Y), [{}, {"weight": CW, "label_smoothing": 0.1}]),
    ("cross_entropy", (A, SOFT), [{}, {"weight": CW}, {"label_smoothing": 0.2, "weight": CW}]),
    ("cross_entropy", (A[0], SOFT[0]), [{}]),
    ("multi_margin_loss", (A, Y), [{}, {"p": 2}, {"margin": 0.3, "weight": CW}]),
    ("multi_margin_loss", (A[0], Y[0]), [{}]),
    ("multi_margin_loss", (A[0], Y[:1]), [{}]),
    ("multilabel_margin_loss", (A, LABELS), [{}]),
    ("multilabel_margin_loss", (A[0], LABELS[0]), [{}]),
    ("multilabel_soft_margin_loss", (A, Q), [{}, {"weight": CW}]),
    ("multilabel_soft_margin_loss", (A[0], Q[0]), [{}]),
]  # fmt: skip


def tensor_pair(value: Any, grad: bool = True) -> tuple[Any, Any]:
    """Return the value as a PyTorch tensor and as ours. With `grad`, floating arrays require a gradient."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value, value
    array = np.asarray(value)
    grad = grad and array.dtype.kind == "f"
    return torch.tensor(array, requires_grad=grad), wg.tensor(array, requires_grad=grad)


def compare(name: str, inputs: tuple[Any, ...], options: dict[str, Any], call: Any) -> None:
    pairs = [tensor_pair(v, name != "soft_margin_loss" or i == 0) for i, v in enumerate(inputs)]
    option_pairs = {k: tensor_pair(v, False) for k, v in options.items()}
    theirs = call(torch, [p[0] for p in pairs], {k: v[0] for k, v in option_pairs.items()})
    ours = call(wg, [p[1] for p in pairs], {k: v[1] for k, v in option_pairs.items()})
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-11)
    direction = np.random.default_rng(1).standard_normal(theirs.shape)
    theirs.backward(torch.tensor(direction))
    ours.backward(wg.tensor(direction))
    for a, b in (*pairs, *option_pairs.values()):
        if torch.is_tensor(a) and a.requires_grad:
            assert (a.grad is None) == (b.grad is None), name
            if a.grad is not None:
                np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}{i}")
@pytest.mark.filterwarnings("ignore")
def test_values_and_gradients(case: int) -> None:
    name, inputs, choices = CASES[case]
    for options in choices:
        for reduction in REDUCTIONS:
            compare(
                name, inputs, {**options, **reduction},
                lambda m, args, kwargs: getattr(m.nn.functional, name)(*args, **kwargs),
            )  # fmt: skip


MODULES: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("L1Loss", {}, (A, B)), ("MSELoss", {}, (A, B)), ("SmoothL1Loss", {"beta": 0.5}, (A, B)),
    ("HuberLoss", {"delta": 0.5}, (A, B)), ("BCELoss", {"weight": W}, (P, Q)),
    ("BCEWithLogitsLoss", {"weight": W, "pos_weight": CW}, (A, Q)), ("KLDivLoss", {"log_target": True}, (A, B)),
    ("PoissonNLLLoss", {"full": True, "log_input": False}, (P, Q)), ("GaussianNLLLoss", {"full": True}, (A, B, P)),
    ("SoftMarginLoss", {}, (A, S)), ("HingeEmbeddingLoss", {"margin": 0.5}, (A, S)),
    ("MarginRankingLoss", {"margin": 0.5}, (A, B, S)), ("CosineEmbeddingLoss", {"margin": 0.5}, (A, B, S[:, 0])),
    ("TripletMarginLoss", {"p": 1.0, "swap": True}, (A, B, N3)), ("TripletMarginWithDistanceLoss", {}, (A, B, N3)),
    ("NLLLoss", {"weight": CW, "ignore_index": 2}, (A, Y)), ("CrossEntropyLoss", {"label_smoothing": 0.1}, (A, Y)),
    ("CrossEntropyLoss", {"weight": CW}, (A, Y)), ("MultiMarginLoss", {"p": 2, "weight": CW}, (A, Y)),
    ("MultiLabelMarginLoss", {}, (A, LABELS)), ("MultiLabelSoftMarginLoss", {"weight": CW}, (A, Q)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(MODULES)), ids=lambda i: f"{MODULES[i][0]}{i}")
@pytest.mark.filterwarnings("ignore")
def test_modules(case: int) -> None:
    name, options, inputs = MODULES[case]
    modules = [
        getattr(m.nn, name)(**{k: tensor_pair(v, False)[i] for k, v in options.items()})
        for i, m in enumerate((torch, wg))
    ]
    assert repr(modules[1]) == repr(modules[0])
    assert list(modules[1].state_dict()) == list(modules[0].state_dict())
    for key, value in vars(modules[0]).items():
        if not key.startswith("_"):
            assert vars(modules[1])[key] == value
    parameter_names = [list(inspect.signature(type(m).__init__).parameters) for m in modules]
    assert parameter_names[1] == parameter_names[0]
    args = [[tensor_pair(v, False)[i] for v in inputs] for i in range(2)]
    theirs, ours = (m(*a) for m, a in zip(modules, args, strict=True))
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9)
    old_values = [*modules[0].state_dict().values()]
    doubled = {k: wg.tensor(v.numpy() * 2) for k, v in modules[0].state_dict().items()}
    modules[1].load_state_dict(doubled)
    for old, new in zip(old_values, modules[1].state_dict().values(), strict=True):
        np.testing.assert_array_equal(new.detach().numpy(), old.detach().numpy() * 2)


def test_signatures() -> None:
    for name in dict.fromkeys(n for n, _, _ in CASES):
        theirs, ours = (inspect.signature(getattr(m.nn.functional, name)) for m in (torch, wg))
        assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ], name


def outcome(call: Any, module: Any) -> Any:
    """Return the shape of a call's result, or its error, and the categories of its warnings."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        try:
            result: Any = tuple(call(module, module.nn.functional).shape)
        except Exception as error:
            result = error
    return result, sorted({w.category for w in recorded}, key=str)


EDGE_CASES: dict[str, Any] = {
    "sizes": lambda m, F: F.mse_loss(m.ones(3, 1), m.ones(3)),
    "sizes that clash": lambda m, F: F.mse_loss(m.ones(2), m.ones(3)),
    "smooth sizes": lambda m, F: F.smooth_l1_loss(m.ones(3, 1), m.ones(3)),
    "huber sizes": lambda m, F: F.huber_loss(m.ones(3, 1), m.ones(3)),
    "weight": lambda m, F: F.l1_loss(m.ones(3), m.ones(3), weight=m.ones(1)),
    "bce": lambda m, F: F.binary_cross_entropy(m.ones(3, 1), m.ones(3)),
    "bce logits": lambda m, F: F.binary_cross_entropy_with_logits(m.ones(3, 1), m.ones(3)),
    "legacy": lambda m, F: F.mse_loss(m.ones(3), m.ones(3), size_average=False),
    "legacy none": lambda m, F: F.mse_loss(m.ones(3), m.ones(3), reduce=False),
    "legacy positional": lambda m, F: F.l1_loss(m.ones(3), m.ones(3), True, False),
    "legacy module": lambda m, F: m.nn.MSELoss(reduce=False)(m.ones(3), m.ones(3)),
    "reduction": lambda m, F: F.soft_margin_loss(m.ones(3), m.ones(3), reduction="average"),
    "poisson reduction": lambda m, F: F.poisson_nll_loss(m.ones(3), m.ones(3), reduction="average"),
    "kl mean": lambda m, F: F.kl_div(m.ones(3), m.ones(3)),
    "batchmean": lambda m, F: F.kl_div(m.ones(3, 2), m.ones(3, 2), reduction="batchmean"),
    "beta": lambda m, F: F.smooth_l1_loss(m.ones(3), m.ones(3), beta=-1),
    "delta": lambda m, F: F.huber_loss(m.ones(3), m.ones(3), delta=0),
    "var": lambda m, F: F.gaussian_nll_loss(m.ones(3), m.ones(3), -m.ones(3)),
    "var number": lambda m, F: F.gaussian_nll_loss(m.ones(3), m.ones(3), -1.0),
    "var shape": lambda m, F: F.gaussian_nll_loss(m.ones(3, 2), m.ones(3, 2), m.ones(2)),
    "ranking": lambda m, F: F.margin_ranking_loss(m.ones(3, 1), m.ones(3), m.ones(3)),
    "cosine": lambda m, F: F.cosine_embedding_loss(m.ones(3), m.ones(3), m.ones(3)),
    "cosine 0-d": lambda m, F: F.cosine_embedding_loss(m.ones(2, 3), m.ones(2, 3), m.tensor(1)),
    "triplet": lambda m, F: F.triplet_margin_loss(m.ones(2, 3), m.ones(2, 3), m.ones(3)),
    "triplet margin": lambda m, F: F.triplet_margin_loss(m.ones(2, 3), m.ones(2, 3), m.ones(2, 3), margin=0),
    "triplet module": lambda m, F: m.nn.TripletMarginLoss(margin=-1),
    "p": lambda m, F: F.multi_margin_loss(m.ones(2, 3), m.tensor([0, 1]), p=3),
    "p module": lambda m, F: m.nn.MultiMarginLoss(p=3),
    "margin weight": lambda m, F: F.multi_margin_loss(m.ones(2, 3), m.tensor([0, 1]), weight=m.ones(1, 3)),
    "margin target": lambda m, F: F.multi_margin_loss(m.ones(2, 3), m.tensor([0, 1, 2])),
    "margin class": lambda m, F: F.multi_margin_loss(m.ones(2, 3), m.tensor([0, 3])),
    "multilabel class": lambda m, F: F.multilabel_margin_loss(m.ones(1, 3), m.tensor([[0, 3, -1]])),
    "multilabel shape": lambda m, F: F.multilabel_margin_loss(m.ones(1, 3), m.tensor([0, 1])),
    "smoothing": lambda m, F: F.cross_entropy(m.ones(2, 3), m.tensor([0, 1]), label_smoothing=1.5),
    "soft ignored": lambda m, F: F.cross_entropy(m.ones(2, 3), m.ones(2, 3), ignore_index=1),
    "batch": lambda m, F: F.cross_entropy(m.ones(2, 3), m.tensor([0, 1, 2])),
    "class": lambda m, F: F.cross_entropy(m.ones(2, 3), m.tensor([0, 3])),
    "class weights": lambda m, F: F.cross_entropy(m.ones(2, 3), m.tensor([0, 2]), m.ones(2)),
    "float target": lambda m, F: F.nll_loss(m.ones(2, 3), m.ones(2)),
    "integers": lambda m, F: F.mse_loss(m.ones(3, dtype=m.int64), m.ones(3, dtype=m.int64)),
    "integers of smooth": lambda m, F: F.smooth_l1_loss(m.ones(3, dtype=m.int64), m.ones(3, dtype=m.int64)),
    "old name": lambda m, F: m.nn.NLLLoss2d()(m.ones(1, 2, 1, 1), m.zeros(1, 1, 1, dtype=m.int64)),
}


@pytest.mark.parametrize("name", EDGE_CASES)
def test_errors_and_warnings(name: str) -> None:
    (theirs, their_warnings), (ours, our_warnings) = (outcome(EDGE_CASES[name], m) for m in (torch, wg))
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{theirs!r} against {ours!r}"
    else:
        assert ours == theirs
    assert our_warnings == their_warnings


ctc_labels = np.array([[1, 2, 2, 4], [3, 3, 1, 1], [2, 1, 4, 3]])


@pytest.mark.parametrize("blank", [0, 2, 5])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("lengths", [(9, 7, 8), (9, 3, 2), (9, 0, 5)])
def test_ctc(blank: int, padded: bool, lengths: tuple[int, ...]) -> None:
    logits = np.random.default_rng(9).standard_normal((9, 3, 6))
    labels = np.where(ctc_labels == blank, 5 - blank, ctc_labels)
    counts = (4, 2, 3)
    targets = labels if padded else np.concatenate([row[:n] for row, n in zip(labels, counts, strict=True)])
    for reduction in ("none", "mean", "sum"):
        for zero_infinity in (False, True):
            results = []
            for m in (torch, wg):
                x = m.tensor(logits, requires_grad=True)
                logs = m.nn.functional.log_softmax(x, 2)
                input_lengths = m.tensor(lengths) if zero_infinity else lengths
                loss = m.nn.CTCLoss(blank, reduction, zero_infinity)(
                    logs, m.tensor(targets), input_lengths, m.tensor(counts) if zero_infinity else counts
                )
                loss.sum().backward()
                results.append((loss.detach().numpy(), x.grad.numpy()))
            np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-9)
            np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-8, atol=1e-11)


def _ctc(m: Any, targets: Any, lengths: Any = (6, 6), counts: Any = (3, 2), **options: Any) -> Any:
    return m.nn.functional.ctc_loss(m.zeros(6, 2, 4).log_softmax(-1), targets(m), lengths, counts, **options)


def _labels(m: Any) -> Any:
    return m.tensor([[1, 2, 3], [1, 1, 0]])


CTC_EDGE_CASES: dict[str, Any] = {
    "too long": lambda m, F: _ctc(m, _labels, (6, 7)), "too many": lambda m, F: _ctc(m, _labels, counts=(3, 4)),
    "few lengths": lambda m, F: _ctc(m, _labels, (6,)), "blank": lambda m, F: _ctc(m, _labels, blank=4),
    "reduction": lambda m, F: _ctc(m, _labels, reduction="x"),
    "floats": lambda m, F: _ctc(m, lambda m: _labels(m).float()),
    "half": lambda m, F: F.ctc_loss(m.zeros(6, 2, 4).half(), _labels(m), (6, 6), (3, 2)),
    "flat": lambda m, F: _ctc(m, lambda m: _labels(m).reshape(-1)),
    "negative": lambda m, F: _ctc(m, _labels, counts=(-1, 2)), "number": lambda m, F: _ctc(m, _labels, 6),
    "samples": lambda m, F: _ctc(m, lambda m: _labels(m)[:1]),
    "one sample": lambda m, F: F.ctc_loss(m.zeros(6, 4), m.tensor([1, 2]), (6,), (2,), reduction="none"),
    "one sample, tensors": lambda m, F: F.ctc_loss(m.zeros(6, 4), m.tensor([1, 2]), m.tensor(6), m.tensor(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CTC_EDGE_CASES)
def test_ctc_errors(name: str) -> None:
    (theirs, _), (ours, _) = (outcome(CTC_EDGE_CASES[name], m) for m in (torch, wg))
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{theirs!r} against {ours!r}"
    else:
        assert ours == theirs


@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax(bias: bool) -> None:
    theirs, ours = (m.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0, bias) for m in (torch, wg))
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({k: wg.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = np.random.default_rng(3).standard_normal((12, 8)).astype(np.float32) * 4
    for rows, y in ((x, np.arange(12) * 7 % 20), (x[:3], np.array([0, 1, 3])), (x[0], np.array(15))):
        results = []
        for m, module in ((torch, theirs), (wg, ours)):
            for p in module.parameters():
                p.grad = None
            leaf = m.tensor(rows, requires_grad=True)
            out, loss = module(leaf, m.tensor(y))
            loss.backward()
            grads = [p.grad.numpy() if p.grad is not None else np.zeros(tuple(p.shape)) for p in module.parameters()]
            results.append([out.detach().numpy(), loss.detach().numpy(), leaf.grad.numpy(), *grads])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        ours.log_prob(wg.tensor(x)).detach().numpy(),
        theirs.log_prob(torch.tensor(x)).detach().numpy(),
        rtol=1e-4,
        atol=1e-5,
    )
    assert ours.predict(wg.tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()
    for args in (((8, 20, []), ValueError), ((8, 20, [4, 4]), ValueError), ((8, 20, [20]), ValueError)):
        for m in (torch, wg):
            with pytest.raises(args[1]):
                m.nn.AdaptiveLogSoftmaxWithLoss(*args[0])
    for m, module in ((torch, theirs), (wg, ours)):
        for shapes in (((3, 8), (2,)), ((8,), (1,)), ((3, 8), (3, 1))):
            with pytest.raises(RuntimeError):
                module(m.zeros(*shapes[0]), m.zeros(*shapes[1], dtype=m.int64))
        with pytest.raises(RuntimeError):
            module(m.zeros(1, 8), m.tensor([20]))
