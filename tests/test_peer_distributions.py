"""Compare distributions with PyTorch, if installed: shapes, moments, densities, entropies, divergences, gradients."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Singular sample")  # which PyTorch says of regular Wishart samples

RNG = np.random.default_rng(3)
LOC, SCALE = RNG.standard_normal((4, 3)), RNG.uniform(0.5, 2, 3)
POSITIVE, SMALL = RNG.uniform(0.5, 3, (4, 3)), RNG.uniform(0.2, 4, 3)
PROBS, LOGITS = RNG.uniform(0.1, 0.9, (4, 3)), RNG.standard_normal((4, 3))
REAL = RNG.standard_normal((2, 4, 3)) * 2
ABOVE_0, UNIT = RNG.uniform(0.1, 4, (2, 4, 3)), RNG.uniform(0.05, 0.95, (2, 4, 3))
BITS, COUNTS = RNG.integers(0, 2, (2, 4, 3)) * 1.0, RNG.integers(0, 5, (2, 4, 3)) * 1.0
SHARES = np.exp(REAL) / np.exp(REAL).sum(-1, keepdims=True)
CLASSES, ONE_HOT = RNG.integers(0, 3, (2, 4)), np.eye(3)[RNG.integers(0, 3, (2, 4))]
DRAWS = RNG.multinomial(7, [0.2, 0.3, 0.5], (2, 4)) * 1.0
SQUARE_ROOTS = RNG.standard_normal((4, 3, 3))
COVARIANCES = SQUARE_ROOTS @ SQUARE_ROOTS.swapaxes(-1, -2) + np.eye(3)
TRIANGLES = np.linalg.cholesky(COVARIANCES)
CORRELATIONS = TRIANGLES[0] / np.linalg.norm(TRIANGLES[0], axis=-1, keepdims=True)
MATRICES = np.linalg.inv(COVARIANCES) * RNG.uniform(1, 3, (2, 4, 1, 1))
FACTORS, DEGREES = RNG.standard_normal((4, 3, 2)), RNG.uniform(3.5, 9, 4)

# Name, parameters, values for log_prob. Arrays become float64 tensors of both libraries.
CASES: list[tuple[str, dict[str, Any], np.ndarray]] = [
    ("Normal", {"loc": LOC, "scale": SCALE}, REAL),
    ("LogNormal", {"loc": LOC, "scale": SCALE}, ABOVE_0),
    ("LogisticNormal", {"loc": LOC[:, :2], "scale": SCALE[:2]}, SHARES),
    ("HalfNormal", {"scale": POSITIVE}, ABOVE_0),
    ("Uniform", {"low": -5 - POSITIVE, "high": 5 + POSITIVE}, np.clip(REAL, -5, 5)),
    ("Laplace", {"loc": LOC, "scale": SCALE}, REAL),
    ("Cauchy", {"loc": LOC, "scale": SCALE}, REAL),
    ("HalfCauchy", {"scale": POSITIVE}, ABOVE_0),
    ("Gumbel", {"loc": LOC, "scale": SCALE}, REAL),
    ("Exponential", {"rate": POSITIVE}, ABOVE_0),
    ("Pareto", {"scale": POSITIVE / 100, "alpha": POSITIVE}, ABOVE_0),
    ("Weibull", {"scale": POSITIVE, "concentration": SCALE}, ABOVE_0),
    ("Kumaraswamy", {"concentration1": POSITIVE, "concentration0": SMALL}, UNIT),
    ("Gamma", {"concentration": POSITIVE, "rate": SMALL}, ABOVE_0),
    ("InverseGamma", {"concentration": POSITIVE, "rate": SMALL}, ABOVE_0),
    ("Chi2", {"df": POSITIVE}, ABOVE_0),
    ("StudentT", {"df": POSITIVE, "loc": LOC, "scale": SCALE}, REAL),
    ("FisherSnedecor", {"df1": 2 * POSITIVE, "df2": 3 * SMALL}, ABOVE_0),
    ("Beta", {"concentration1": POSITIVE, "concentration0": SMALL}, UNIT),
    ("Dirichlet", {"concentration": POSITIVE}, SHARES),
    ("ContinuousBernoulli", {"probs": PROBS}, UNIT),
    ("ContinuousBernoulli", {"logits": LOGITS * 3}, UNIT),
    ("Bernoulli", {"probs": PROBS}, BITS),
    ("Bernoulli", {"logits": LOGITS}, BITS),
    ("Binomial", {"total_count": 6, "probs": PROBS}, COUNTS),
    ("Binomial", {"total_count": 6, "logits": LOGITS}, COUNTS),
    ("Geometric", {"probs": PROBS}, COUNTS),
    ("Geometric", {"logits": LOGITS}, COUNTS),
    ("NegativeBinomial", {"total_count": POSITIVE, "probs": PROBS}, COUNTS),
    ("NegativeBinomial", {"total_count": 3.0, "logits": LOGITS}, COUNTS),
    ("Poisson", {"rate": POSITIVE}, COUNTS),
    ("Categorical", {"probs": PROBS}, CLASSES),
    ("Categorical", {"logits": LOGITS}, CLASSES),
    ("OneHotCategorical", {"probs": PROBS}, ONE_HOT),
    ("OneHotCategoricalStraightThrough", {"logits": LOGITS}, ONE_HOT),
    ("Multinomial", {"total_count": 7, "probs": PROBS}, DRAWS),
    ("Multinomial", {"total_count": 7, "logits": LOGITS}, DRAWS),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "probs": PROBS}, UNIT),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "logits": LOGITS}, UNIT),
    ("RelaxedOneHotCategorical", {"temperature": np.array(0.7), "logits": LOGITS}, SHARES),
    ("VonMises", {"loc": LOC, "concentration": SCALE}, REAL),
    ("MultivariateNormal", {"loc": LOC, "covariance_matrix": COVARIANCES}, REAL),
    ("MultivariateNormal", {"loc": LOC[0], "precision_matrix": COVARIANCES}, REAL),
    ("MultivariateNormal", {"loc": LOC, "scale_tril": TRIANGLES[0]}, REAL),
    ("MultivariateNormal", {"loc": LOC, "scale_tril": TRIANGLES[:1]}, REAL),
    ("LowRankMultivariateNormal", {"loc": LOC, "cov_factor": FACTORS[0], "cov_diag": SCALE}, REAL),
    ("LowRankMultivariateNormal", {"loc": LOC[0], "cov_factor": FACTORS, "cov_diag": POSITIVE}, REAL),
    ("Wishart", {"df": DEGREES, "covariance_matrix": COVARIANCES}, MATRICES),
    ("Wishart", {"df": DEGREES, "precision_matrix": COVARIANCES[0]}, MATRICES),
    ("Wishart", {"df": DEGREES, "scale_tril": TRIANGLES[0]}, MATRICES),
    ("LKJCholesky", {"dim": 3, "concentration": POSITIVE}, CORRELATIONS),
]  # fmt: skip
IDS = [f"{name}-{list(parameters)[-1]}" for name, parameters, _ in CASES]
# PyTorch's formula of the mode differs where the density has none: at the ends, or NaN for concentrations below 1.
# PyTorch computes I0 of VonMises by polynomials for float32, and the entropy of Multinomial partly in float32.
TOLERANCES = {"VonMises": 1e-6, "Multinomial": 1e-6}
WITHOUT_MODE = {"Kumaraswamy", "Dirichlet", "Beta"}


def mine(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return wg.tensor(value, dtype=wg.float64 if value.dtype.kind == "f" else None)


def theirs(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, np.ndarray) else value


def build(name: str, parameters: dict[str, Any], grad: bool = False) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return the distribution of both libraries, and their floating parameters."""
    mine_by_name = {k: mine(v) for k, v in parameters.items()}
    theirs_by_name = {k: theirs(v) for k, v in parameters.items()}
    leaves = [[v for v in d.values() if not isinstance(v, int | float)] for d in (mine_by_name, theirs_by_name)]
    for tensor in itertools.chain(*leaves) if grad else ():
        tensor.requires_grad_()
    return (
        getattr(wg.distributions, name)(**mine_by_name), getattr(torch.distributions, name)(**theirs_by_name), *leaves
    )  # fmt: skip


def compare(mine_value: Any, theirs_value: Any, what: str = "", rtol: float = 1e-9) -> None:
    assert tuple(mine_value.shape) == tuple(theirs_value.shape), what
    np.testing.assert_allclose(
        mine_value.detach().numpy(), theirs_value.detach().numpy(), rtol, 1e-11, err_msg=what, equal_nan=True
    )


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=IDS)
def test_shapes_and_moments(name: str, parameters: dict[str, Any], values: np.ndarray) -> None:
    own, reference, *_ = build(name, parameters)
    assert (tuple(own.batch_shape), tuple(own.event_shape)) == (
        tuple(reference.batch_shape), tuple(reference.event_shape)
    )  # fmt: skip
    assert own.has_rsample == reference.has_rsample
    assert own.has_enumerate_support == reference.has_enumerate_support
    assert own.support.event_dim == reference.support.event_dim
    assert own.support.is_discrete == reference.support.is_discrete
    for moment in ("mean", "variance", "stddev", "mode"):
        if moment == "mode" and name in WITHOUT_MODE:
            continue
        try:
            expected = getattr(reference, moment)
        except NotImplementedError:
            continue
        compare(getattr(own, moment), expected, moment, TOLERANCES.get(name, 1e-9))
    assert tuple(own.sample((2, 0)).shape) == (2, 0, *own.batch_shape, *own.event_shape)
    for shape in ((), (5,)):
        assert tuple(own.sample(shape).shape) == tuple(reference.sample(shape).shape)
        assert own.sample(shape).dtype.name == str(reference.sample(shape).dtype).removeprefix("torch.")


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=IDS)
def test_log_prob_and_its_gradients(name: str, parameters: dict[str, Any], values: np.ndarray) -> None:
    own, reference, own_leaves, reference_leaves = build(name, parameters, grad=True)
    result, expected = own.log_prob(mine(values)), reference.log_prob(theirs(values))
    compare(result, expected, "log_prob", TOLERANCES.get(name, 1e-9))
    result.sum().backward()
    expected.sum().backward()
    for a, b in zip(own_leaves, reference_leaves, strict=True):
        # PyTorch's cholesky_solve has gradients of the elements above the diagonal, which it does not read.
        expected_gradient = b.grad.tril() if "scale_tril" in parameters and b is reference_leaves[-1] else b.grad
        compare(a.grad, expected_gradient, "gradient of log_prob", TOLERANCES.get(name, 1e-7))


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=IDS)
def test_entropy_cdf_and_icdf(name: str, parameters: dict[str, Any], values: np.ndarray) -> None:
    own, reference, *_ = build(name, parameters)
    for what in ("entropy", "perplexity"):
        try:
            expected = getattr(reference, what)()
        except NotImplementedError:
            continue
        compare(getattr(own, what)(), expected, what, TOLERANCES.get(name, 1e-7))
    for what, argument in (("cdf", values), ("icdf", UNIT)):
        try:
            expected = getattr(reference, what)(theirs(argument))
            result = getattr(own, what)(mine(argument))
        except NotImplementedError:
            continue
        compare(result, expected, what, 1e-7)


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=IDS)
def test_expand_and_enumerate_support(name: str, parameters: dict[str, Any], values: np.ndarray) -> None:
    own, reference, *_ = build(name, parameters)
    shape = (2, *reference.batch_shape)
    own_expanded, expanded = own.expand(shape), reference.expand(shape)
    assert tuple(own_expanded.batch_shape) == shape
    assert type(own_expanded) is type(own)
    result, expected = own_expanded.log_prob(mine(values)), expanded.log_prob(theirs(values))
    compare(result, expected, "log_prob after expand", TOLERANCES.get(name, 1e-9))
    assert tuple(own_expanded.sample((3,)).shape) == tuple(expanded.sample((3,)).shape)
    if reference.has_enumerate_support:
        for expand in (True, False):
            compare(own.enumerate_support(expand), reference.enumerate_support(expand), "enumerate_support")


DIVERGENCE_PARAMETERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Bernoulli": ({"probs": PROBS}, {"logits": LOGITS}),
    "Beta": ({"concentration1": POSITIVE, "concentration0": SMALL}, {"concentration1": SMALL, "concentration0": SCALE}),
    "Binomial": ({"total_count": 4, "probs": PROBS}, {"total_count": 4, "logits": LOGITS}),
    "Categorical": ({"probs": PROBS}, {"logits": LOGITS}),
    "Cauchy": ({"loc": LOC, "scale": SCALE}, {"loc": 0.5, "scale": POSITIVE}),
    "ContinuousBernoulli": ({"probs": PROBS}, {"logits": LOGITS}),
    "Dirichlet": ({"concentration": POSITIVE}, {"concentration": SMALL}),
    "Exponential": ({"rate": POSITIVE}, {"rate": SCALE}),
    "Gamma": ({"concentration": POSITIVE, "rate": SMALL}, {"concentration": SCALE, "rate": SCALE}),
    "Geometric": ({"probs": PROBS}, {"logits": LOGITS}),
    "Gumbel": ({"loc": LOC, "scale": SCALE}, {"loc": 0.5, "scale": POSITIVE}),
    "HalfNormal": ({"scale": SCALE}, {"scale": POSITIVE}),
    "Laplace": ({"loc": LOC, "scale": SCALE}, {"loc": 0.5, "scale": POSITIVE}),
    "LogNormal": ({"loc": LOC, "scale": SCALE}, {"loc": LOC[0], "scale": POSITIVE}),
    "Normal": ({"loc": LOC, "scale": SCALE}, {"loc": 0.5, "scale": POSITIVE}),
    "OneHotCategorical": ({"probs": PROBS}, {"logits": LOGITS}),
    "Pareto": ({"scale": 2 + POSITIVE, "alpha": 2.5 + SCALE}, {"scale": POSITIVE, "alpha": POSITIVE}),
    "Poisson": ({"rate": POSITIVE}, {"rate": SCALE}),
    "Uniform": ({"low": PROBS / 2, "high": 0.5 + PROBS / 2}, {"low": -PROBS, "high": 1 + PROBS}),
    "InverseGamma": ({"concentration": POSITIVE, "rate": SMALL}, {"concentration": SCALE, "rate": SCALE}),
    "Chi2": ({"df": POSITIVE}, {"df": SCALE}),
    "MultivariateNormal": (
        {"loc": LOC, "covariance_matrix": COVARIANCES}, {"loc": LOC[0], "scale_tril": TRIANGLES[0]},
    ),
    "LowRankMultivariateNormal": (
        {"loc": LOC, "cov_factor": FACTORS, "cov_diag": SCALE},
        {"loc": LOC, "cov_factor": FACTORS[1], "cov_diag": POSITIVE},
    ),
}  # fmt: skip
PAIRS = [
    (p.__name__, q.__name__)
    for p, q in torch.distributions.kl._KL_REGISTRY
    if p.__name__ in DIVERGENCE_PARAMETERS and q.__name__ in DIVERGENCE_PARAMETERS
] + [("InverseGamma", "InverseGamma"), ("LogNormal", "LogNormal"), ("Chi2", "Gamma"), ("Chi2", "Chi2")]


@pytest.mark.parametrize(("p_name", "q_name"), PAIRS, ids=lambda name: name)
def test_divergences_and_their_gradients(p_name: str, q_name: str) -> None:
    p, p_reference, p_leaves, p_reference_leaves = build(p_name, DIVERGENCE_PARAMETERS[p_name][0], grad=True)
    q, q_reference, q_leaves, q_reference_leaves = build(q_name, DIVERGENCE_PARAMETERS[q_name][1], grad=True)
    result = wg.distributions.kl_divergence(p, q)
    expected = torch.distributions.kl_divergence(p_reference, q_reference)
    compare(result, expected, "kl_divergence", 1e-8)
    if not torch.isinf(expected).any():
        result.sum().backward()
        expected.sum().backward()
        for a, b in zip([*p_leaves, *q_leaves], [*p_reference_leaves, *q_reference_leaves], strict=True):
            compare(a.grad, b.grad, "gradient of kl_divergence", 1e-6)


def test_pairs_of_pytorch_with_a_divergence_are_registered() -> None:
    from weftgrad.distributions.kl import _registered

    own = {(p.__name__, q.__name__) for p, q in _registered}
    reference = {(p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY}
    assert reference <= own


def test_divergence_of_wisharts() -> None:
    """PyTorch has it for single matrices."""
    p, p_reference, *_ = build("Wishart", {"df": 4.5, "covariance_matrix": COVARIANCES[0]})
    q, q_reference, *_ = build("Wishart", {"df": 7.0, "scale_tril": TRIANGLES[1]})
    expected = torch.distributions.kl_divergence(p_reference, q_reference)
    compare(wg.distributions.kl_divergence(p, q), expected, "kl_divergence", 1e-8)
    batch = p.expand((2, 4)), build("Wishart", {"df": DEGREES, "covariance_matrix": COVARIANCES})[0]
    assert wg.distributions.kl_divergence(*batch).shape == (2, 4)


@pytest.mark.parametrize(("name", "parameters", "values"), CASES, ids=IDS)
def test_matrices_of_covariance(name: str, parameters: dict[str, Any], values: np.ndarray) -> None:
    own, reference, *_ = build(name, parameters)
    for attribute in ("covariance_matrix", "precision_matrix", "scale_tril"):
        if hasattr(type(reference), attribute):
            compare(getattr(own, attribute), getattr(reference, attribute), attribute, 1e-8)
            compare(
                getattr(own.expand((2, 4)), attribute), getattr(reference.expand((2, 4)), attribute), attribute, 1e-8
            )


D, T = wg.distributions, torch.distributions
TRANSFORMS: list[tuple[str, Callable[[Any, Any], Any], np.ndarray]] = [
    ("exp", lambda d, t: d.ExpTransform(), REAL),
    ("power", lambda d, t: d.PowerTransform(t(SCALE)), ABOVE_0),
    ("sigmoid", lambda d, t: d.SigmoidTransform(), REAL),
    ("softplus", lambda d, t: d.SoftplusTransform(), REAL),
    ("tanh", lambda d, t: d.TanhTransform(), REAL),
    ("affine", lambda d, t: d.AffineTransform(t(LOC), t(-SCALE)), REAL),
    ("affine of events", lambda d, t: d.AffineTransform(1.0, t(SCALE), event_dim=1), REAL),
    ("stick breaking", lambda d, t: d.StickBreakingTransform(), REAL),
    ("inverse", lambda d, t: d.ExpTransform().inv, ABOVE_0),
    ("chain", lambda d, t: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]), REAL),
    ("inverse of a chain", lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.5, 2.0)]).inv,
     ABOVE_0 * 2 + 1),
    ("independent", lambda d, t: d.IndependentTransform(d.TanhTransform(), 2), REAL),
    ("distribution function", lambda d, t: d.CumulativeDistributionTransform(d.Normal(0.0, t(SCALE))), REAL),
    ("factor of correlations", lambda d, t: d.CorrCholeskyTransform(), REAL),
    ("reshape", lambda d, t: d.ReshapeTransform((4, 3), (2, 6)), REAL),
    ("cat", lambda d, t: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], -1, [1, 2]), REAL),
    ("stack", lambda d, t: d.StackTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0), d.TanhTransform()], -1),
     REAL),
]  # fmt: skip


@pytest.mark.parametrize(("transform", "x"), [row[1:] for row in TRANSFORMS], ids=[row[0] for row in TRANSFORMS])
def test_transforms(transform: Callable[[Any, Any], Any], x: np.ndarray) -> None:
    own, reference = transform(D, mine), transform(T, theirs)
    y, expected = own(mine(x)), reference(theirs(x))
    compare(y, expected, "value")
    compare(own.inv(y), reference.inv(expected), "inverse", 1e-6)
    assert own.inv.inv is own
    compare(
        own.log_abs_det_jacobian(mine(x), y), reference.log_abs_det_jacobian(theirs(x), expected), "log det", 1e-8
    )  # fmt: skip
    assert own.domain.event_dim == reference.domain.event_dim
    assert own.codomain.event_dim == reference.codomain.event_dim
    assert own.bijective == reference.bijective
    assert tuple(own.forward_shape(x.shape)) == tuple(reference.forward_shape(x.shape))
    assert own == own
    assert own.with_cache(1)(mine(x)).shape == y.shape


CONSTRAINTS: list[Callable[[Any], Any]] = [
    lambda c: c.real, lambda c: c.positive, lambda c: c.nonnegative, lambda c: c.unit_interval,
    lambda c: c.greater_than(2.0), lambda c: c.greater_than_eq(-1.0), lambda c: c.less_than(1.0),
    lambda c: c.interval(-1.0, 3.0), lambda c: c.half_open_interval(-1.0, 3.0), lambda c: c.simplex,
    lambda c: c.independent(c.positive, 1), lambda c: c.real_vector,
    lambda c: c.lower_cholesky, lambda c: c.positive_definite, lambda c: c.positive_semidefinite,
    lambda c: c.corr_cholesky,
    lambda c: c.stack([c.positive, c.real, c.unit_interval], -1), lambda c: c.cat([c.positive, c.real], -1, [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_transforms_onto_constraints(registry: str, constraint: Callable[[Any], Any]) -> None:
    own, reference = constraint(D.constraints), constraint(T.constraints)
    is_of_matrices = own.event_dim == 2 and own is not D.constraints.corr_cholesky
    if is_of_matrices and registry == "biject_to":
        with pytest.raises(NotImplementedError, match="no transform onto"):
            D.biject_to(own)
        return
    x = REAL[:, :3] if is_of_matrices else REAL
    y = getattr(D, registry)(own)(mine(x))
    expected = getattr(T, registry)(reference)(theirs(x))
    compare(y, expected)
    assert own.check(y).all()
    if own is not D.constraints.corr_cholesky:
        np.testing.assert_array_equal(own.check(mine(x)).numpy(), reference.check(theirs(x)).numpy())
    if is_of_matrices:
        compare(getattr(D, registry)(own).inv(y), getattr(T, registry)(reference).inv(expected), "inverse", 1e-8)


def test_large_covariances_are_symmetric_up_to_rounding() -> None:
    matrices = np.array([[[1e6, 2e5], [2e5 + 0.1, 1e6]], [[1.0, 0.1], [0.101, 1.0]]])
    for name in ("symmetric", "positive_definite"):
        expected = torch.stack([getattr(T.constraints, name).check(theirs(m)) for m in matrices])
        np.testing.assert_array_equal(getattr(D.constraints, name).check(mine(matrices)).numpy(), expected.numpy())


@pytest.mark.parametrize("name", ["square", "symmetric", "lower_triangular", "lower_cholesky", "corr_cholesky",
                                  "positive_definite", "positive_semidefinite"])  # fmt: skip
def test_constraints_of_matrices(name: str) -> None:
    own, reference = getattr(D.constraints, name), getattr(T.constraints, name)
    assert (own.event_dim, own.is_discrete) == (reference.event_dim, reference.is_discrete)
    lower = np.tril(ABOVE_0[:, :3])
    correlation = lower / np.linalg.norm(lower, axis=-1, keepdims=True)
    for matrices in (REAL[:, :3], lower, -lower, correlation, lower @ lower.swapaxes(-1, -2), REAL):
        if name in ("lower_cholesky", "corr_cholesky") and matrices is REAL:
            continue  # PyTorch's result for matrices that are not square depends on their zeros
        np.testing.assert_array_equal(own.check(mine(matrices)).numpy(), reference.check(theirs(matrices)).numpy())


def test_transformed_independent_and_mixed_distributions() -> None:
    def distributions(d: Any, t: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
        normal = d.Normal(t(LOC), t(SCALE))
        four_shares = np.concatenate([SHARES * 0.8, np.full((2, 4, 1), 0.2)], -1)
        chain = [d.AffineTransform(1.0, t(-SCALE)), d.ExpTransform()]
        mixture = d.MixtureSameFamily(d.Categorical(t(PROBS)), d.Normal(t(LOC), t(SCALE)))
        vectors = d.MixtureSameFamily(
            d.Categorical(t(PROBS[0])), d.Independent(d.Normal(t(LOC[:3, :2]), t(SCALE[:2])), 1)
        )  # fmt: skip
        return [
            (d.TransformedDistribution(normal, chain), t(ABOVE_0)),
            (d.TransformedDistribution(normal, d.StickBreakingTransform()), t(four_shares)),
            (d.TransformedDistribution(d.Normal(t(LOC[0]), 1.0), d.AffineTransform(t(LOC), 2.0)), t(REAL)),
            (
                d.TransformedDistribution(d.Independent(normal, 1), d.ReshapeTransform((3,), (1, 3))),
                t(REAL[..., None, :]),
            ),
            (d.Independent(normal, 2), t(REAL)),
            (mixture, t(REAL[..., 0])),
            (vectors, t(REAL[..., :2])),
        ]  # fmt: skip

    for (own, value), (reference, expected_value) in zip(distributions(D, mine), distributions(T, theirs), strict=True):
        own._validate_args = reference._validate_args = False
        assert tuple(own.batch_shape) == tuple(reference.batch_shape)
        assert tuple(own.event_shape) == tuple(reference.event_shape)
        compare(own.log_prob(value), reference.log_prob(expected_value), repr(own), 1e-8)
        assert tuple(own.sample((2,)).shape) == tuple(reference.sample((2,)).shape)
        shape = (2, *reference.batch_shape)
        expanded, reference_expanded = own.expand(shape), reference.expand(shape)
        assert tuple(expanded.sample((3,)).shape) == tuple(reference_expanded.sample((3,)).shape)
        for name in ("mean", "variance"):
            try:
                expected = getattr(reference, name)
            except NotImplementedError:
                continue
            compare(getattr(own, name), expected, name)
        try:
            expected = reference.cdf(expected_value)
        except NotImplementedError:
            continue
        compare(own.cdf(value), expected, "cdf", 1e-7)


def test_gradients_of_gamma_samples() -> None:
    """Samples of both libraries differ; the derivative at one sample is the same."""
    from weftgrad.distributions.gamma_gradients import log_gamma_derivative

    concentration, sample = np.meshgrid([0.1, 0.7, 1.0, 4.0, 12.0, 300.0], [0.01, 0.5, 1.0, 5.0, 20.0, 280.0])
    expected = torch._standard_gamma_grad(torch.tensor(concentration), torch.tensor(sample)).numpy() / sample
    result = log_gamma_derivative(wg.tensor(concentration), wg.tensor(np.log(sample))).numpy()
    likely = np.abs(sample - concentration) < 6 * np.sqrt(concentration) + 1  # PyTorch approximates
    np.testing.assert_allclose(result[likely], expected[likely], 2e-3)


@pytest.mark.parametrize(
    "name", [n for n in D.__all__ if hasattr(T, n) and isinstance(getattr(T, n), type) and n != "Transform"]
)
def test_signatures(name: str) -> None:
    own = list(inspect.signature(getattr(D, name)).parameters)
    assert own == list(inspect.signature(getattr(T, name)).parameters)
    public = {n for n in dir(getattr(T, name)) if not n.startswith("_")}
    in_instances = {"concentration0", "concentration1"} if name == "Beta" else set()
    assert not public - set(dir(getattr(D, name))) - in_instances
