"""Compare composed functions, and layer functions in the top-level namespace, with PyTorch, if installed."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")

NAN = float("nan")
X = np.array([[1.0, NAN, -2.0], [0.0, 4.0, NAN]])
A, B = np.arange(24.0).reshape(3, 2, 4) - 9, np.arange(24.0).reshape(3, 4, 2) / 7
EXTREMES = np.array(
    [0.0, -0.0, 1.0, 0.5, 0.75, -3.0, 8.0, 1e-300, -5e-324, 1.7e308, np.inf, -np.inf, NAN, 0.1, 1 - 2**-53]
)
V, U = np.array([1.0, -2.0, 3.0]), np.array([0.5, 4.0])


CALLS: dict[str, Any] = {
    "nansum": lambda m, t: m.nansum(t(X)), "nansum dim": lambda m, t: t(X).nansum(1, True),
    "nansum dtype": lambda m, t: m.nansum(t(X), 0, dtype=m.float32), "nansum int": lambda m, t: m.nansum(m.arange(5)),
    "nansum bool": lambda m, t: m.nansum(m.ones(3, dtype=m.bool)), "nanmean": lambda m, t: m.nanmean(t(X), 1),
    "nanmean all": lambda m, t: m.nanmean(t(X)), "nanmean none": lambda m, t: m.nanmean(t(np.full(2, NAN))),
    "nanmean int": lambda m, t: m.nanmean(m.arange(3)), "nanmean dtype": lambda m, t: m.nanmean(t(X), dtype=m.int64),
    "clamp_min": lambda m, t: m.clamp_min(t(X), 1), "clamp_max": lambda m, t: m.clamp_max(t(X), 1),
    "clamp": lambda m, t: m.clamp(t(X), 0, 1), "clamp crossed": lambda m, t: t(X).clamp(4, 1),
    "clamp tensor": lambda m, t: m.clamp(t(X), t(X[1]), t(X[0])), "clamp min tensor": lambda m, t: t(X).clamp(t(X[0])),
    "clamp max tensor": lambda m, t: t(X).clamp(max=t(X[1])),
    "addbmm": lambda m, t: m.addbmm(t(np.ones((2, 2))), t(A), t(B), beta=2, alpha=0.5),
    "addbmm expands": lambda m, t: t(np.ones(2)).addbmm(t(A), t(B)),
    "addbmm nan": lambda m, t: m.addbmm(t(np.full((2, 2), NAN)), t(A), t(B), beta=0),
    "addbmm shapes": lambda m, t: m.addbmm(t(np.ones((2, 2))), t(A), t(A)),
    "addbmm too large": lambda m, t: m.addbmm(t(np.ones((5, 2, 2))), t(A), t(B)),
    "addr": lambda m, t: m.addr(t(np.ones((3, 2))), t(V), t(U), beta=2, alpha=0.5),
    "addr row": lambda m, t: t(U).addr(t(V), t(U)),
    "addr nan": lambda m, t: m.addr(t(np.full(2, NAN)), t(V), t(U), beta=0),
    "addr int": lambda m, t: m.addr(m.ones(3, 2, dtype=m.int64), m.arange(3), m.arange(2), alpha=2),
    "addr int float": lambda m, t: m.addr(m.ones(3, 2, dtype=m.int64), m.arange(3), m.arange(2), alpha=0.5),
    "addr matrix": lambda m, t: m.addr(t(np.ones((3, 2))), t(np.ones((3, 1))), t(U)),
    "addr sizes": lambda m, t: m.addr(t(np.ones((3, 3))), t(V), t(U)),
    "ldexp": lambda m, t: m.ldexp(t(V), m.tensor([1, -2, 0])), "ldexp floats": lambda m, t: m.ldexp(t(V), t(V)),
    "ldexp int": lambda m, t: m.ldexp(m.arange(3), m.tensor([1, -2, 0])),
    "ldexp single": lambda m, t: m.ldexp(m.ones(2), m.tensor([3, -140])),
    "renorm": lambda m, t: m.renorm(t(A), 2, 1, 5.0), "renorm 1": lambda m, t: t(A).renorm(1, -1, 20.0),
    "renorm max": lambda m, t: m.renorm(t(A), 2, 0, -1.0), "renorm vector": lambda m, t: m.renorm(t(V), 2, 0, 1.0),
    "renorm p": lambda m, t: m.renorm(t(A), 0, 0, 1.0),
    "renorm int": lambda m, t: m.renorm(m.ones(2, 2).long(), 2, 0, 1.0), "vander": lambda m, t: m.vander(t(V)),
    "vander N": lambda m, t: m.vander(t(V), 5, True), "vander int": lambda m, t: m.vander(m.arange(4)),
    "vander bool": lambda m, t: m.vander(m.tensor([True, False]), 3), "vander 0": lambda m, t: m.vander(t(V), 0),
    "vander 1": lambda m, t: m.vander(t(V), 1), "vander matrix": lambda m, t: m.vander(t(X)),
    "vander negative": lambda m, t: m.vander(t(V), -1), "linalg.vander": lambda m, t: m.linalg.vander(t(A), N=3),
    "linalg.vander own": lambda m, t: m.linalg.vander(t(V)), "vector_norm": lambda m, t: m.linalg.vector_norm(t(A)),
    "vector_norm 3": lambda m, t: m.linalg.vector_norm(t(A), 3, 1),
    "vector_norm inf": lambda m, t: m.linalg.vector_norm(t(A), float("inf"), (0, 2), True),
    "vector_norm 0": lambda m, t: m.linalg.vector_norm(t(A), 0),
    "vector_norm ord": lambda m, t: m.linalg.vector_norm(t(A), ord=1),
    "vector_norm int": lambda m, t: m.linalg.vector_norm(m.arange(3)),
    "vector_norm dtype": lambda m, t: m.linalg.vector_norm(m.ones(3), dtype=m.float64),
    "norm": lambda m, t: m.linalg.norm(t(A)), "norm dim": lambda m, t: m.linalg.norm(t(A), dim=1),
    "norm fro": lambda m, t: m.linalg.norm(t(A[0]), "fro"), "norm 1": lambda m, t: m.linalg.norm(t(A[0]), 1),
    "norm inf": lambda m, t: m.linalg.norm(t(A), float("inf"), (1, 2)),
    "norm vector": lambda m, t: m.linalg.norm(t(V), 3),
    "norm -1": lambda m, t: m.linalg.norm(t(A[0]), -1, keepdim=True),
    "norm of three": lambda m, t: m.linalg.norm(t(A), 2), "matrix_norm": lambda m, t: m.linalg.matrix_norm(t(A)),
    "matrix_norm 1": lambda m, t: m.linalg.matrix_norm(t(A), 1, (2, 0), True),
    "matrix_norm vector": lambda m, t: m.linalg.matrix_norm(t(V)),
    "matrix_norm 3": lambda m, t: m.linalg.matrix_norm(t(A), 3),
    "softmax dtype": lambda m, t: m.softmax(m.arange(3), 0, dtype=m.float64), "softmax": lambda m, t: t(V).softmax(0),
    "softmax method": lambda m, t: t(V).log_softmax(0, m.float32),
    "softmax int": lambda m, t: m.softmax(m.arange(3), 0), "softmax dim": lambda m, t: m.softmax(t(V)),
    "prelu": lambda m, t: m.prelu(t(V), t(np.array([0.5]))), "celu": lambda m, t: m.celu(t(V), 0.5),
    "threshold": lambda m, t: m.threshold(t(V), 0.5, 7), "hardshrink": lambda m, t: m.hardshrink(t(V), 1.5),
    "rrelu": lambda m, t: m.rrelu(t(V)), "dropout": lambda m, t: m.dropout(t(V), 0.5, False),
    "layer_norm": lambda m, t: m.layer_norm(t(A), (4,)), "group_norm": lambda m, t: m.group_norm(t(A), 2),
    "batch_norm": lambda m, t: m.batch_norm(t(A), None, None, None, None, True, 0.1, 1e-5, False),
    "cosine": lambda m, t: m.cosine_similarity(t(A), t(A[::-1].copy()), 2),
    "pairwise": lambda m, t: m.pairwise_distance(t(A), t(A[::-1].copy()), 1.0, 1e-6, True),
    "cosine dim": lambda m, t: m.cosine_similarity(t(V), t(V)), "mean dtype": lambda m, t: m.mean(t(V), dtype=m.int64),
    "mean out": lambda m, t: m.mean(t(V), out=m.zeros((), dtype=m.int64)),
    "cumsum dtype": lambda m, t: m.cumsum(t(V), 0, dtype=m.int64), "sum dtype": lambda m, t: t(V).sum(dtype=m.int64),
    "prod dtype": lambda m, t: t(V).prod(dtype=m.int64),
}  # fmt: skip


def run(m: Any, name: str, grad: bool) -> Any:
    leaves: list[Any] = []

    def tensor(value: Any) -> Any:
        leaves.append(m.tensor(value, requires_grad=grad))
        return leaves[-1]

    try:
        result = CALLS[name](m, tensor)
    except Exception as error:
        return error
    grads = []
    if grad and result.requires_grad:
        result.backward(
            m.tensor(
                np.random.default_rng(1).standard_normal(tuple(result.shape)).astype(str(result.dtype).split(".")[-1])
            )
        )
        grads = [np.zeros(tuple(x.shape)) if x.grad is None else x.grad.numpy() for x in leaves]
    return str(result.dtype).split(".")[-1], tuple(result.shape), result.detach().numpy(), grads


# PyTorch's gradients of these are wrong (ldexp with integer exponents), fail, or are NaN for empty sums. Ours of
# vector_norm with order 0, a count of elements, do not exist.
NO_GRADIENT_CHECK = ("ldexp", "vander", "vander N", "nanmean none", "vector_norm 0")


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_agree(name: str, grad: bool) -> None:
    grad = grad and name not in NO_GRADIENT_CHECK
    theirs, ours = run(torch, name, grad), run(wg, name, grad)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{theirs!r} against {ours!r}"
        return
    assert not isinstance(ours, Exception), ours
    assert ours[:2] == theirs[:2]
    rtol = 1e-5 if ours[0] == "float32" else 1e-10
    np.testing.assert_allclose(ours[2], theirs[2], rtol=rtol)
    for a, b in zip(theirs[3], ours[3], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5 if name == "softmax method" else 1e-9, atol=1e-12)


def test_frexp() -> None:
    for dtype in ("float64", "float32", "float16"):
        values = (
            EXTREMES.astype(dtype) if dtype == "float64" else np.array([0, 1, 3, -0.1, 1e-7, np.inf, NAN, 1e4], dtype)
        )
        theirs, ours = torch.frexp(torch.tensor(values)), wg.frexp(wg.tensor(values))
        np.testing.assert_array_equal(ours.mantissa.numpy(), theirs.mantissa.numpy())
        np.testing.assert_array_equal(ours.exponent.numpy(), theirs.exponent.numpy())
        assert ours.exponent.dtype is wg.int32
    with pytest.raises(RuntimeError):
        wg.frexp(wg.arange(3))


def test_heaviside_and_diagonals() -> None:
    for x, v in ((X, np.array(5.0)), (np.array([-1, 0, 1]), np.array([7]))):
        np.testing.assert_array_equal(
            wg.heaviside(wg.tensor(x), wg.tensor(v)).numpy(), torch.heaviside(torch.tensor(x), torch.tensor(v)).numpy()
        )
    for m in (torch, wg):
        with pytest.raises(RuntimeError):
            m.heaviside(m.ones(2), m.tensor(1))
        for shape in ((3,), (2, 3, 3)):
            with pytest.raises(RuntimeError):
                m.zeros(*shape).fill_diagonal_(1)
    for shape, wrap in (
        ((5, 2), True),
        ((7, 3), True),
        ((2, 5), True),
        ((3, 3, 3), False),
        ((4, 3), True),
        ((0, 3), False),
    ):
        theirs, ours = (m.zeros(*shape).fill_diagonal_(2.5, wrap) for m in (torch, wg))
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bag(mode: int) -> None:
    weight = np.random.default_rng(2).standard_normal((5, 3))
    results = []
    for m in (torch, wg):
        outputs = m.embedding_bag(m.tensor(weight), m.tensor([0, 1, 2, 0, 4]), m.tensor([0, 2]), False, mode)
        results.append([x.numpy() for x in outputs])
    np.testing.assert_allclose(results[1][0], results[0][0])
    np.testing.assert_array_equal(results[1][1], results[0][1])
    if mode:  # for sums PyTorch returns no bag sizes
        np.testing.assert_array_equal(results[1][2], results[0][2])
    if mode == 2:
        np.testing.assert_array_equal(results[1][3], results[0][3])


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_map_and_trace() -> None:
    for dtype in ("float32", "int64"):
        results = []
        for m in (torch, wg):
            x = m.arange(6).reshape(2, 3).to(getattr(m, dtype))
            other = m.tensor([2, 3, 5]).to(getattr(m, dtype))
            x.map_(other, lambda a, b: a / b + 0.75)
            x.map2_(x[:1], other, lambda a, b, c: a * b - c)
            results.append(m.jit.trace(m.nn.ReLU(), x.float())(x).numpy())
        np.testing.assert_array_equal(results[1], results[0])
    own, reference = (list(inspect.signature(m.jit.trace).parameters) for m in (wg, torch))
    assert own == reference
