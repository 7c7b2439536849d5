"""Check distributions against SciPy: densities, moments, samples. And errors, gradients of samples, programs."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

stats = pytest.importorskip("scipy.stats")  # the whole library, which tests in a bare environment do without
D = wg.distributions
COUNT = 20_000

# Distribution, SciPy's, values.
CONTINUOUS: list[tuple[Any, Any, list[float]]] = [
    (D.Normal(1.0, 2.0), stats.norm(1, 2), [-3.0, 0.0, 1.5]),
    (D.LogNormal(0.5, 0.7), stats.lognorm(0.7, scale=math.exp(0.5)), [0.2, 1.0, 4.0]),
    (D.HalfNormal(1.5), stats.halfnorm(scale=1.5), [0.0, 1.0, 3.0]),
    (D.Uniform(-1.0, 3.0), stats.uniform(-1, 4), [-0.5, 0.0, 2.0]),
    (D.Laplace(0.5, 2.0), stats.laplace(0.5, 2), [-3.0, 0.5, 2.0]),
    (D.Cauchy(0.5, 2.0), stats.cauchy(0.5, 2), [-3.0, 0.5, 2.0]),
    (D.HalfCauchy(2.0), stats.halfcauchy(scale=2), [0.0, 0.5, 9.0]),
    (D.Gumbel(0.5, 2.0), stats.gumbel_r(0.5, 2), [-3.0, 0.5, 2.0]),
    (D.Exponential(0.5), stats.expon(scale=2), [0.0, 1.0, 5.0]),
    (D.Pareto(1.5, 3.0), stats.pareto(3, scale=1.5), [1.5, 2.0, 7.0]),
    (D.Weibull(2.0, 1.5), stats.weibull_min(1.5, scale=2), [0.1, 1.0, 5.0]),
    (D.Gamma(0.05, 2.0), stats.gamma(0.05, scale=0.5), [1e-9, 0.1, 1.0]),
    (D.Gamma(0.7, 0.5), stats.gamma(0.7, scale=2), [0.1, 1.0, 5.0]),
    (D.Gamma(30.0, 2.0), stats.gamma(30, scale=0.5), [10.0, 15.0, 22.0]),
    (D.InverseGamma(3.5, 2.0), stats.invgamma(3.5, scale=2), [0.2, 1.0, 3.0]),
    (D.Chi2(3.0), stats.chi2(3), [0.1, 1.0, 5.0]),
    (D.Beta(0.3, 0.6), stats.beta(0.3, 0.6), [0.01, 0.5, 0.9]),
    (D.Beta(3.0, 40.0), stats.beta(3, 40), [0.01, 0.1, 0.3]),
    (D.StudentT(4.5, 1.0, 2.0), stats.t(4.5, 1, 2), [-3.0, 1.0, 4.0]),
    (D.FisherSnedecor(5.0, 9.0), stats.f(5, 9), [0.2, 1.0, 3.0]),
    (D.GeneralizedPareto(0.5, 2.0, 0.3), stats.genpareto(0.3, 0.5, 2), [0.6, 3.0, 20.0]),
    (D.GeneralizedPareto(0.0, 1.0, -0.4), stats.genpareto(-0.4), [0.1, 1.0, 2.4]),
    (D.GeneralizedPareto(0.0, 1.0, 0.0), stats.genpareto(0), [0.1, 1.0, 6.0]),
    (D.ContinuousBernoulli(0.05), stats.truncexpon(math.log(19), 0, 1 / math.log(19)), [0.1, 0.5, 0.9]),
    (D.VonMises(0.0, 3.0), stats.vonmises(3), [-1.0, 0.0, 2.0]),
    (D.VonMises(0.0, 1e-3), stats.vonmises(1e-3), [-1.0, 0.0, 2.0]),
    (D.TransformedDistribution(D.Uniform(0.0, 1.0), [D.SigmoidTransform().inv, D.AffineTransform(1.0, 2.0)]),
     stats.logistic(1, 2), [-3.0, 1.0, 4.0]),
]  # fmt: skip
DISCRETE: list[tuple[Any, Any, list[float]]] = [
    (D.Bernoulli(0.3), stats.bernoulli(0.3), [0.0, 1.0]),
    (D.Binomial(12, 0.3), stats.binom(12, 0.3), [0.0, 4.0, 12.0]),
    (D.Binomial(300, 0.7), stats.binom(300, 0.7), [180.0, 210.0, 230.0]),
    (D.Binomial(20, 0.99), stats.binom(20, 0.99), [17.0, 20.0]),
    (D.Geometric(0.3), stats.geom(0.3, -1), [0.0, 4.0]),
    (D.NegativeBinomial(2.5, 0.6), stats.nbinom(2.5, 0.4), [0.0, 4.0]),
    (D.Poisson(0.4), stats.poisson(0.4), [0.0, 1.0]),
    (D.Poisson(9.5), stats.poisson(9.5), [0.0, 9.0, 20.0]),
    (D.Poisson(10.5), stats.poisson(10.5), [0.0, 9.0, 20.0]),
    (D.Poisson(400.0), stats.poisson(400), [350.0, 400.0, 440.0]),
    (D.Categorical(wg.tensor([1.0, 2.0, 5.0])), stats.rv_discrete(values=([0, 1, 2], [0.125, 0.25, 0.625])),
     [0.0, 1.0, 2.0]),
]  # fmt: skip


def ids(rows: list[tuple[Any, Any, list[float]]]) -> list[str]:
    return [f"{type(row[0]).__name__}-{index}" for index, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("own", "reference", "values"), CONTINUOUS + DISCRETE, ids=ids(CONTINUOUS + DISCRETE)
)  # fmt: skip
def test_densities_and_moments(own: Any, reference: Any, values: list[float]) -> None:
    log_density = getattr(reference, "logpdf", None) or reference.logpmf
    np.testing.assert_allclose(own.log_prob(wg.tensor(values)).numpy(), log_density(values), 2e-5, 2e-5)
    calls = [("entropy", own.entropy, reference.entropy)]
    if not isinstance(own, D.Categorical | D.VonMises):
        calls += [("mean", lambda: own.mean, reference.mean), ("variance", lambda: own.variance, reference.var)]
    if not isinstance(own, D.VonMises):
        calls += [("cdf", lambda: own.cdf(wg.tensor(values)), lambda: reference.cdf(values))]
        calls += [("icdf", lambda: own.icdf(wg.tensor([0.1, 0.7])), lambda: reference.ppf([0.1, 0.7]))]
    for what, call, expected in calls:
        try:
            result = call()
        except NotImplementedError:
            continue
        if not np.isnan(result.numpy()).any():  # Cauchy's moments: NaN of SciPy, NaN and infinity of PyTorch
            expected_value = np.asarray(expected())
            finite = np.where(np.isnan(expected_value), np.inf, expected_value)
            np.testing.assert_allclose(result.numpy(), finite, 1e-4, 1e-5, err_msg=what)


@pytest.mark.parametrize(("own", "reference", "values"), CONTINUOUS, ids=ids(CONTINUOUS))
def test_samples_of_continuous_distributions(own: Any, reference: Any, values: list[float]) -> None:
    wg.manual_seed(5)
    samples = own.sample((COUNT,)).numpy().astype(float)
    assert own.support.check(wg.tensor(samples, dtype=wg.float32)).all()
    assert stats.kstest(samples, reference.cdf).pvalue > 1e-3


@pytest.mark.parametrize(("own", "reference", "values"), DISCRETE, ids=ids(DISCRETE))
def test_samples_of_discrete_distributions(own: Any, reference: Any, values: list[float]) -> None:
    wg.manual_seed(6)
    samples = own.sample((COUNT,)).numpy().astype(int)
    assert own.support.check(wg.tensor(samples)).all()
    low, high = int(reference.ppf(0.001)), int(reference.ppf(0.999))
    edges = np.unique(np.linspace(low, high, 30).astype(int))
    expected = np.diff(reference.cdf(edges), prepend=0.0, append=1.0) * COUNT
    observed = np.bincount(np.searchsorted(edges, samples), minlength=len(expected))
    rare = expected < 5
    expected = np.append(expected[~rare], expected[rare].sum())
    observed = np.append(observed[~rare], observed[rare].sum())
    if expected[-1] < 1e-6:
        assert not observed[-1]
        expected, observed = expected[:-1], observed[:-1]
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_samples_of_vectors() -> None:
    wg.manual_seed(7)
    concentration = wg.tensor([[0.3, 1.0, 4.0], [20.0, 5.0, 1.0]])
    dirichlet = D.Dirichlet(concentration)
    samples = dirichlet.sample((COUNT,))
    np.testing.assert_allclose(samples.mean(0).numpy(), dirichlet.mean.numpy(), atol=0.01)
    np.testing.assert_allclose(samples.var(0).numpy(), dirichlet.variance.numpy(), atol=0.01)
    assert stats.kstest(samples[:, 0, 0].numpy(), stats.beta(0.3, 5.0).cdf).pvalue > 1e-3
    multinomial = D.Multinomial(9, wg.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, 1.0]]))
    samples = multinomial.sample((COUNT,))
    assert (samples.sum(-1) == 9).all()
    np.testing.assert_allclose(samples.mean(0).numpy(), multinomial.mean.numpy(), atol=0.05)
    np.testing.assert_allclose(samples.var(0).numpy(), multinomial.variance.numpy(), atol=0.08)
    mixture = D.MixtureSameFamily(D.Categorical(wg.tensor([1.0, 3.0])), D.Normal(wg.tensor([-4.0, 2.0]), 0.5))
    samples = mixture.sample((COUNT,)).numpy()
    cdf = lambda x: 0.25 * stats.norm(-4, 0.5).cdf(x) + 0.75 * stats.norm(2, 0.5).cdf(x)  # noqa: E731
    assert stats.kstest(samples, cdf).pvalue > 1e-3
    relaxed = D.RelaxedOneHotCategorical(0.1, wg.tensor([1.0, 3.0]))
    assert abs(float((relaxed.sample((COUNT,))[:, 1] > 0.5).float().mean()) - 0.75) < 0.02


GRADIENTS: list[tuple[Any, dict[str, float]]] = [
    (D.Normal, {"loc": 0.5, "scale": 1.5}), (D.Uniform, {"low": -1.0, "high": 2.0}),
    (D.Gamma, {"concentration": 0.4, "rate": 2.0}), (D.Gamma, {"concentration": 25.0, "rate": 2.0}),
    (D.Beta, {"concentration1": 0.6, "concentration0": 2.0}), (D.StudentT, {"df": 9.0, "loc": 0.5, "scale": 1.5}),
    (D.Exponential, {"rate": 2.0}), (D.Laplace, {"loc": 0.5, "scale": 1.5}), (D.Gumbel, {"loc": 0.5, "scale": 1.5}),
    (D.Weibull, {"scale": 1.5, "concentration": 2.5}), (D.LogNormal, {"loc": 0.5, "scale": 0.4}),
    (D.Kumaraswamy, {"concentration1": 2.0, "concentration0": 3.0}),
    (D.ContinuousBernoulli, {"logits": 2.0}), (D.ContinuousBernoulli, {"logits": 0.005}),
    (D.GeneralizedPareto, {"loc": 0.5, "scale": 1.5, "concentration": 0.1}),
    (D.InverseGamma, {"concentration": 6.0, "rate": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "parameters"), GRADIENTS, ids=[f"{row[0].__name__}-{index}" for index, row in enumerate(GRADIENTS)]
)
def test_gradients_of_samples_are_those_of_the_mean(family: Any, parameters: dict[str, float]) -> None:
    """Of samples and their squares, the mean gradient is the gradient of the first and of the second moment."""
    wg.manual_seed(8)
    leaves = {name: wg.tensor(value, dtype=wg.float64, requires_grad=True) for name, value in parameters.items()}
    samples = family(**leaves).rsample((200_000,))
    own = wg.autograd.grad(samples.mean(), list(leaves.values()), retain_graph=True)
    own_second = wg.autograd.grad(samples.square().mean(), list(leaves.values()))
    distribution = family(**leaves)
    moments = distribution.mean, distribution.mean.square() + distribution.variance
    for gradients, moment in zip((own, own_second), moments, strict=True):
        expected = wg.autograd.grad(moment, list(leaves.values()), retain_graph=True, allow_unused=True)
        for gradient, value, name in zip(gradients, expected, leaves, strict=True):
            reference = 0.0 if value is None else value.item()
            assert abs(gradient.item() - reference) < 0.05 * max(1.0, abs(reference)), name


def test_gradients_of_gamma_samples_by_differences() -> None:
    """At a fixed probability, the sample is a function of the concentration."""
    from scipy import special

    from weftgrad.distributions.gamma_gradients import log_gamma_derivative

    for a in (0.05, 0.7, 3.0, 9.9, 10.1, 80.0):
        for probability in (0.02, 0.3, 0.6, 0.99):
            step = 1e-5 * a
            samples = [special.gammaincinv(a + sign * step, probability) for sign in (-1, 1)]
            expected = np.diff(np.log(samples)) / (2 * step)
            log_sample = np.log(special.gammaincinv(a, probability))
            for dtype, tolerance in ((wg.float64, 1e-6), (wg.float32, 1e-4)):
                result = log_gamma_derivative(wg.tensor([a], dtype=dtype), wg.tensor([log_sample], dtype=dtype))
                np.testing.assert_allclose(result.numpy(), expected, tolerance)


def test_gradients_of_gamma_samples_below_the_smallest_number() -> None:
    """Samples below the smallest number of float32 are raised to it, with the gradient of a sample there."""
    a, rate = (wg.full((200,), value, requires_grad=True) for value in (1e-3, 1.0))
    wg.manual_seed(0)
    sample = D.Gamma(a, rate).rsample()
    tiny = np.finfo(np.float32).tiny
    is_smallest = sample.detach().numpy() == tiny
    assert 100 < is_smallest.sum() < 200
    gradients = [g.numpy() for g in wg.autograd.grad(sample.log().sum(), [a, rate])]
    np.testing.assert_allclose(gradients[0][is_smallest], 86760.97, rtol=1e-4)
    np.testing.assert_allclose(gradients[1][is_smallest], -1.0, rtol=1e-4)


def test_gradients_of_shares_below_the_smallest_number() -> None:
    """The logarithm of a raised sample of `Beta` or `Dirichlet` has the gradient of a sample there, as of `Gamma`."""
    tiny = np.finfo(np.float32).tiny
    wg.manual_seed(0)
    concentration = wg.full((300, 2), 1e-3, requires_grad=True)
    for sample in (D.Dirichlet(concentration).rsample(), D.Beta(*concentration.unbind(-1)).rsample()):
        logs = sample.log() if sample.ndim == 1 else sample.log()[:, 0]
        is_smallest = logs.exp().detach().numpy() <= 1.001 * tiny
        assert 100 < is_smallest.sum() < 200
        (grad,) = wg.autograd.grad(logs.sum(), [concentration])
        assert grad.isfinite().all()
        first, second = grad.numpy()[is_smallest].T  # a logarithm of -87 and more below the other, over 1e-3
        assert (first > 0.99 * 86760).all()
        assert (second < 0).all()


def test_errors_name_the_parameter_the_constraint_and_the_value() -> None:
    message = r"Normal: parameter scale of shape \[3\] must satisfy GreaterThan\(lower_bound=0.0\); "
    with pytest.raises(ValueError, match=message + r"element \[1\] is -2.0 \(2 of 3 invalid\)"):
        D.Normal(0.0, wg.tensor([1.0, -2.0, math.nan]))
    with pytest.raises(ValueError, match=r"parameter loc of shape \[\] must satisfy Real\(\); it is nan"):
        D.Normal(math.nan, 1.0)
    with pytest.raises(
        ValueError, match=r"parameter probs .* must satisfy Simplex\(\); element \[1\] is \[1.5, -0.5\]"
    ):
        D.Categorical(wg.tensor([[1.0, 1.0], [3.0, -1.0]]))
    message = r"Gamma: a value of shape \[2\] must be in the support GreaterThanEq\(lower_bound=0.0\); "
    with pytest.raises(ValueError, match=message + r"element \[1\] is -1.0"):
        D.Gamma(1.0, 1.0).log_prob(wg.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match="low must be below high"):
        D.Uniform(2.0, 1.0)
    with pytest.raises(ValueError, match="takes either probs or logits, not both"):
        D.Bernoulli(0.5, 0.5)
    with pytest.raises(ValueError, match="takes either probs or logits, not neither"):
        D.Categorical()
    with pytest.raises(ValueError, match=r"does not broadcast with batch shape \[3\]"):
        D.Normal(wg.zeros(3), 1.0).log_prob(wg.zeros(2))
    with pytest.raises(ValueError, match=r"must be the event's, \[3\]; its shape is \[2\]"):
        D.Dirichlet(wg.ones(3)).log_prob(wg.ones(2))
    with pytest.raises(ValueError, match="a value is a tensor, not float"):
        D.Normal(0.0, 1.0).log_prob(0.0)
    with pytest.raises(NotImplementedError, match="Beta has no cdf"):
        D.Beta(1.0, 1.0).cdf(wg.tensor(0.5))
    with pytest.raises(NotImplementedError, match="use sample"):
        D.Categorical(wg.ones(2)).rsample()
    with pytest.raises(NotImplementedError, match="no formula for Cauchy and Normal"):
        D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0))


def test_checks_can_be_switched_off() -> None:
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    assert D.Exponential(1.0, validate_args=False).log_prob(wg.tensor(-1.0)).item() == 1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="takes a bool"):
        D.Distribution.set_default_validate_args(3)


def test_numbers_tensors_and_dtypes() -> None:
    assert D.Normal(0, 1).sample().dtype == wg.float32
    assert D.Normal(wg.zeros(2, dtype=wg.float64), 1).sample().dtype == wg.float64
    assert D.Gamma(wg.ones(2, dtype=wg.float16), 1).sample().dtype == wg.float16
    assert D.Poisson(wg.ones(2, dtype=wg.bfloat16)).sample().dtype == wg.bfloat16
    assert D.Categorical(wg.ones(2)).sample().dtype == wg.int64
    with pytest.raises(TypeError, match="a number or a tensor, not str"):
        D.Normal("0", 1)
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Normal(wg.zeros(2), 1.0)) == "Normal(loc: weftgrad.Size([2]), scale: weftgrad.Size([2]))"


def test_the_same_seed_gives_the_same_samples() -> None:
    distributions = [own for own, *_ in CONTINUOUS + DISCRETE]
    wg.manual_seed(9)
    first = [own.sample((4,)) for own in distributions]
    wg.manual_seed(9)
    assert all(wg.equal(a, own.sample((4,))) for a, own in zip(first, distributions, strict=True))


def test_small_concentrations_give_no_nan() -> None:
    wg.manual_seed(10)
    concentration = wg.full((500, 3), 1e-3, requires_grad=True)
    samples = D.Dirichlet(concentration).rsample()
    assert samples.isfinite().all()
    samples.square().sum().backward()
    assert concentration.grad.isfinite().all()
    beta = D.Beta(concentration[:, 0], concentration[:, 1])
    assert beta.log_prob(beta.sample()).isfinite().all()
    assert (D.Gamma(concentration, 1.0).rsample() > 0).all()


def test_copies_and_pickles() -> None:
    for own in (D.Normal(0.0, 1.0), D.Categorical(wg.ones(3)), D.LogNormal(0.0, 1.0)):
        for clone in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
            assert wg.equal(clone.log_prob(wg.tensor(1.0)), own.log_prob(wg.tensor(1.0)))


def test_subclasses_expand_by_themselves() -> None:
    class Standard(D.Normal):
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)

    assert Standard().expand((2,)).sample().shape == (2,)

    class Own(D.Distribution):
        arg_constraints = {}  # noqa: RUF012

        def __init__(self) -> None:
            super().__init__()

        def rsample(self, sample_shape: tuple[int, ...] = ()) -> wg.Tensor:
            return wg.ones(sample_shape)

    assert Own().sample((2,)).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="Own has no log_prob"):
        Own().log_prob(wg.ones(1))


def test_exponential_families_agree_with_their_formulas() -> None:
    from weftgrad.distributions.distribution import ExponentialFamily
    from weftgrad.distributions.same_family_divergences import _exponential_families

    pairs = [
        (D.Normal(0.5, 2.0), D.Normal(-1.0, 0.7)), (D.Gamma(2.0, 3.0), D.Gamma(0.5, 1.0)),
        (D.Beta(2.0, 3.0), D.Beta(0.5, 1.0)), (D.Exponential(2.0), D.Exponential(0.5)),
        (D.Dirichlet(wg.tensor([1.0, 2.0])), D.Dirichlet(wg.tensor([3.0, 0.5]))),
        (D.Bernoulli(0.3), D.Bernoulli(0.8)), (D.Poisson(2.0), D.Poisson(0.5)),
    ]  # fmt: skip
    for p, q in pairs:
        np.testing.assert_allclose(_exponential_families(p, q).numpy(), D.kl_divergence(p, q).numpy(), 1e-4, 1e-5)
        if not isinstance(p, D.Poisson):  # its carrier measure is not 1
            np.testing.assert_allclose(ExponentialFamily.entropy(p).numpy(), p.entropy().numpy(), 1e-4)


def run_program(source: str) -> None:
    program = "import weftgrad.torch_compat\n" + textwrap.dedent(source)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr


def test_program_of_a_variational_autoencoder() -> None:
    run_program("""
        import torch
        from torch import nn
        from torch.distributions import Bernoulli, Independent, Normal, kl_divergence

        torch.manual_seed(0)

        class Autoencoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
                self.decoder = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 16))

            def forward(self, x):
                loc, log_scale = self.encoder(x).chunk(2, -1)
                posterior = Independent(Normal(loc, log_scale.exp()), 1)
                prior = Independent(Normal(torch.zeros_like(loc), torch.ones_like(loc)), 1)
                likelihood = Independent(Bernoulli(logits=self.decoder(posterior.rsample())), 1)
                return (kl_divergence(posterior, prior) - likelihood.log_prob(x)).mean()

        patterns = (torch.rand(2, 16) > 0.5).float()
        data = patterns[torch.randint(0, 2, (64,))]
        model = Autoencoder()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        losses = []
        for _ in range(80):
            loss = model(data)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        assert losses[-1] < 0.4 * losses[0], losses[::10]
    """)


def test_program_of_a_policy_gradient() -> None:
    run_program("""
        import torch
        from torch.distributions.categorical import Categorical
        from torch.distributions.normal import Normal
        import torch.distributions as dist

        torch.manual_seed(0)
        policy = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
        for _ in range(100):
            state = torch.randint(0, 3, (64,))
            actions = Categorical(logits=policy(torch.nn.functional.one_hot(state, 3).float()))
            action = actions.sample()
            reward = (action == state).float()
            loss = -(actions.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * actions.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        probabilities = policy(torch.eye(3)).softmax(-1)
        assert (probabilities.diagonal() > 0.8).all(), probabilities

        # A squashed Gaussian policy, as soft actor-critic has it.
        loc = torch.zeros(5, 2, requires_grad=True)
        squashed = dist.TransformedDistribution(Normal(loc, 0.5), [dist.transforms.TanhTransform(cache_size=1)])
        action = squashed.rsample()
        squashed.log_prob(action).sum().backward()
        assert loc.grad.isfinite().all() and (action.abs() < 1).all()
        from torch.distributions import MultivariateNormal
        from torch.distributions.multivariate_normal import MultivariateNormal as FromItsModule
        assert FromItsModule is MultivariateNormal is dist.multivariate_normal.MultivariateNormal
        assert MultivariateNormal(torch.zeros(2), torch.eye(2)).sample().shape == (2,)
        from torch.distributions.bernoulli import Bernoulli
        assert Bernoulli is dist.Bernoulli and isinstance(dist.constraints.positive, dist.constraints.Constraint)
    """)


COVARIANCE = np.array([[4.0, 1.0, -0.5], [1.0, 2.0, 0.3], [-0.5, 0.3, 1.0]])
MEAN = np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("name", ["covariance_matrix", "precision_matrix", "scale_tril"])
def test_multivariate_normal(name: str) -> None:
    matrices = {
        "covariance_matrix": COVARIANCE, "precision_matrix": np.linalg.inv(COVARIANCE),
        "scale_tril": np.linalg.cholesky(COVARIANCE),
    }  # fmt: skip
    d = D.MultivariateNormal(wg.tensor(MEAN), **{name: wg.tensor(matrices[name])})
    reference = stats.multivariate_normal(MEAN, COVARIANCE)
    values = np.random.default_rng(0).standard_normal((5, 2, 3)) * 3
    np.testing.assert_allclose(d.log_prob(wg.tensor(values)).numpy(), reference.logpdf(values), 1e-12)
    np.testing.assert_allclose(d.entropy().item(), reference.entropy(), 1e-12)
    np.testing.assert_allclose(d.variance.numpy(), np.diag(COVARIANCE), 1e-12)
    for attribute, matrix in matrices.items():
        np.testing.assert_allclose(getattr(d, attribute).numpy(), matrix, 1e-10, 1e-12, err_msg=attribute)
    wg.manual_seed(0)
    samples = d.sample((COUNT,)).numpy()
    np.testing.assert_allclose(samples.mean(0), MEAN, atol=0.06)
    np.testing.assert_allclose(np.cov(samples.T), COVARIANCE, atol=0.12)


def test_low_rank_multivariate_normal() -> None:
    factor, diagonal = np.array([[1.0, 0.5], [-1.0, 2.0], [0.3, 0.0]]), np.array([0.5, 1.0, 2.0])
    covariance = factor @ factor.T + np.diag(diagonal)
    d = D.LowRankMultivariateNormal(wg.tensor(MEAN), wg.tensor(factor), wg.tensor(diagonal))
    reference = stats.multivariate_normal(MEAN, covariance)
    values = np.random.default_rng(0).standard_normal((5, 2, 3)) * 3
    np.testing.assert_allclose(d.log_prob(wg.tensor(values)).numpy(), reference.logpdf(values), 1e-12)
    np.testing.assert_allclose(d.entropy().item(), reference.entropy(), 1e-12)
    wg.manual_seed(0)
    np.testing.assert_allclose(np.cov(d.sample((COUNT,)).numpy().T), covariance, atol=0.15)


def test_divergences_of_normal_vectors() -> None:
    """All four pairs of classes give the divergence of their covariances."""
    factor, diagonal, loc = wg.tensor([[1.0], [0.5], [-0.3]]).double(), wg.tensor([1.0, 2, 0.5]).double(), np.zeros(3)
    low_rank = D.LowRankMultivariateNormal(wg.tensor(loc), factor, diagonal)
    full = D.MultivariateNormal(wg.tensor(MEAN), wg.tensor(COVARIANCE))
    low_rank_as_full = D.MultivariateNormal(wg.tensor(loc), low_rank.covariance_matrix)
    full_as_low_rank = D.LowRankMultivariateNormal(
        wg.tensor(MEAN), wg.tensor(np.linalg.cholesky(COVARIANCE - 0.1 * np.eye(3))), wg.tensor(np.full(3, 0.1))
    )  # fmt: skip
    for p, p_cov, q, q_cov, shift in (
        (full, COVARIANCE, low_rank, low_rank.covariance_matrix.numpy(), loc - MEAN),
        (low_rank, low_rank.covariance_matrix.numpy(), full, COVARIANCE, MEAN - loc),
    ):  # fmt: skip
        inverse = np.linalg.inv(q_cov)
        log_ratio = np.linalg.slogdet(q_cov)[1] - np.linalg.slogdet(p_cov)[1]
        expected = 0.5 * (log_ratio + np.trace(inverse @ p_cov) + shift @ inverse @ shift - 3)
        of_full_class, of_low_rank_class = {full: full, low_rank: low_rank_as_full}, {full: full_as_low_rank}
        pairs = [
            (p, q), (of_full_class[p], of_full_class[q]),
            (of_low_rank_class.get(p, p), of_low_rank_class.get(q, q)),
        ]  # fmt: skip
        for first, second in pairs:
            np.testing.assert_allclose(D.kl_divergence(first, second).item(), expected, 1e-10)
    with pytest.raises(ValueError, match="one shape"):
        D.kl_divergence(full, D.MultivariateNormal(wg.zeros(2), wg.eye(2)))


def test_wishart() -> None:
    d = D.Wishart(5.5, wg.tensor(COVARIANCE))
    reference = stats.wishart(5.5, COVARIANCE)
    values = np.stack([np.eye(3), COVARIANCE * 3])
    np.testing.assert_allclose(
        d.log_prob(wg.tensor(values)).numpy(), [reference.logpdf(v) for v in values], 1e-12
    )  # fmt: skip
    np.testing.assert_allclose(d.entropy().item(), reference.entropy(), 1e-12)
    np.testing.assert_allclose(d.mean.numpy(), reference.mean(), 1e-12)
    np.testing.assert_allclose(d.variance.numpy(), reference.var(), 1e-12)
    np.testing.assert_allclose(d.mode.numpy(), reference.mode(), 1e-12)
    wg.manual_seed(0)
    samples = d.sample((COUNT,)).numpy()
    np.testing.assert_allclose(samples.mean(0), reference.mean(), atol=0.3)
    np.testing.assert_allclose(samples.var(0), reference.var(), rtol=0.1)
    # The divergence is the mean of the difference of densities.
    q = D.Wishart(4.0, scale_tril=wg.eye(3).double())
    drawn = wg.tensor(samples)
    expected = (d.log_prob(drawn) - q.log_prob(drawn)).mean().item()
    np.testing.assert_allclose(D.kl_divergence(d, q).item(), expected, rtol=0.02)
    np.testing.assert_allclose(D.kl_divergence(d, d).item(), 0, atol=1e-12)
    covariance = wg.tensor(COVARIANCE, requires_grad=True)
    D.Wishart(5.5, covariance).rsample((2,)).sum().backward()
    assert covariance.grad is not None
    assert covariance.grad.isfinite().all()
    with pytest.warns(UserWarning, match="may be singular"):
        D.Wishart(2.5, wg.tensor(COVARIANCE))


def test_lkj_cholesky() -> None:
    """The correlation of two numbers is `2 * b - 1` for b from a beta distribution; densities integrate to 1."""
    wg.manual_seed(0)
    d = D.LKJCholesky(2, wg.tensor(1.5, dtype=wg.float64))
    samples = d.sample((COUNT,))
    assert D.constraints.corr_cholesky.check(samples).all()
    assert stats.kstest((samples[:, 1, 0].numpy() + 1) / 2, stats.beta(1.5, 1.5).cdf).pvalue > 1e-3
    correlation = wg.linspace(-1, 1, 4002, dtype=wg.float64)[1:-1]
    rows = wg.stack([correlation, (1 - correlation.square()).sqrt()], -1)
    factors = wg.stack([wg.tensor([1.0, 0.0]).double().expand_as(rows), rows], -2)
    # The Jacobian from factors to correlations is the last diagonal element to the power of D - 2 = 0.
    np.testing.assert_allclose(np.trapezoid(d.log_prob(factors).exp().numpy(), correlation.numpy()), 1, rtol=1e-3)
    # Each correlation of three numbers is beta distributed, too.
    for concentration in (0.7, 3.0):
        samples = D.LKJCholesky(3, wg.tensor(concentration, dtype=wg.float64)).sample((COUNT,))
        matrices = (samples @ samples.mT).numpy()
        marginal = stats.beta(concentration + 0.5, concentration + 0.5)
        for row, column in ((1, 0), (2, 0), (2, 1)):
            assert stats.kstest((matrices[:, row, column] + 1) / 2, marginal.cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="at least 2"):
        D.LKJCholesky(1)


def test_transform_onto_factors_of_correlations() -> None:
    transform = D.CorrCholeskyTransform()
    x = wg.tensor(np.random.default_rng(1).standard_normal((2, 6)), requires_grad=True)
    y = transform(x)
    assert y.shape == (2, 4, 4)
    assert D.constraints.corr_cholesky.check(y).all()
    np.testing.assert_allclose(transform.inv(y.detach()).numpy(), x.detach().numpy(), 1e-9)
    rows, columns = np.tril_indices(4, -1)
    jacobian = wg.autograd.functional.jacobian(lambda v: transform(v)[rows, columns], x[0].detach())
    expected = np.linalg.slogdet(jacobian.numpy())[1]
    np.testing.assert_allclose(transform.log_abs_det_jacobian(x, y)[0].item(), expected, 1e-9)
    for shape in ((4,), (7,), ()):
        with pytest.raises(ValueError, match="elements"):
            transform.forward_shape(shape)


def test_errors_of_distributions_with_covariance() -> None:
    eye, zeros = wg.eye(2), wg.zeros(2)
    for create, message in (
        (lambda: D.MultivariateNormal(zeros), "exactly one"),
        (lambda: D.MultivariateNormal(zeros, eye, scale_tril=eye), "exactly one"),
        (lambda: D.MultivariateNormal(wg.tensor(0.0), eye), "at least one dimension"),
        (lambda: D.MultivariateNormal(zeros, zeros), "at least two dimensions"),
        (lambda: D.MultivariateNormal(zeros, -eye), "covariance_matrix"),
        (lambda: D.MultivariateNormal(zeros, scale_tril=wg.ones(2, 2)), "scale_tril"),
        (lambda: D.MultivariateNormal(zeros, eye).log_prob(wg.zeros(3)), "last dimensions"),
        (lambda: D.LowRankMultivariateNormal(zeros, wg.ones(3, 1), wg.ones(2)), "sizes of events"),
        (lambda: D.LowRankMultivariateNormal(zeros, wg.ones(2, 1), -wg.ones(2)), "cov_diag"),
        (lambda: D.LowRankMultivariateNormal(zeros, zeros, wg.ones(2)), "too few"),
        (lambda: D.LowRankMultivariateNormal(wg.zeros(3, 2), wg.ones(2, 2, 1), wg.ones(2)), "broadcast"),
        (lambda: D.Wishart(0.5, eye), "df is above 1"),
        (lambda: D.Wishart(3.0, eye).log_prob(-eye), "support"),
    ):
        with pytest.raises(ValueError, match=message):
            create()


def test_the_import_of_weftgrad_does_not_import_distributions() -> None:
    source = "import sys, weftgrad; assert 'weftgrad.distributions' not in sys.modules; weftgrad.distributions.Normal"
    subprocess.run([sys.executable, "-c", source], check=True)


@pytest.mark.parametrize("distribution", [D.StudentT, D.InverseGamma])
def test_infinite_variances_leave_other_gradients_alone(distribution: Any) -> None:
    """Where one element of a shared parameter has no variance, the others' gradient is finite."""
    shared = wg.tensor(2.0, requires_grad=True)
    shapes = wg.tensor([1.5, 2.0, 3.0])
    own = distribution(shapes, 0.0, shared) if distribution is D.StudentT else distribution(shapes, shared)
    variance = own.variance
    assert variance.isinf().tolist() == [True, True, False]
    variance[2].backward()
    assert shared.grad is not None
    assert shared.grad.isfinite()
    assert shared.grad > 0
