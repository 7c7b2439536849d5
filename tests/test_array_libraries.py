"""Call scikit-learn, SciPy and array-api-compat with tensors, and compare with the same calls on NumPy's arrays.

    pip install scikit-learn scipy array-api-compat
    SCIPY_ARRAY_API=1 pytest tests/test_array_libraries.py

SciPy reads the variable when it is imported first, so its tests are skipped without it. `CI_THIRD_PARTY=1 .ci/run` runs
all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

RNG = np.random.default_rng(0)
SAMPLES = RNG.normal(size=(60, 5)).astype(np.float32)
CLASSES = (SAMPLES[:, 0] + SAMPLES[:, 1] > 0).astype(np.int64)
GUESSES = np.roll(CLASSES, 1)
TARGETS = (SAMPLES @ np.arange(5) + 1).astype(np.float32)
# Distances between equal points are small differences of large numbers.
TOLERANCES = {"rtol": 1e-3, "atol": 2e-4}

Convert = Callable[[np.ndarray], Any]  # from an array to what the library is called with


def assert_same(results: Any, expected: Any, magnitudes: bool = False) -> None:
    """Compare one result or several. With `magnitudes`, the signs of singular vectors do not matter."""
    if isinstance(expected, (tuple, list)):
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            assert_same(result, value, magnitudes)
        return
    if isinstance(expected, np.ndarray):
        assert isinstance(results, wg.Tensor)
        results = results.numpy()
    pair = (np.abs(results), np.abs(expected)) if magnitudes else (results, expected)
    np.testing.assert_allclose(*pair, **TOLERANCES)


# scikit-learn ---------------------------------------------------------------------------------------------------------


def fit(estimator: Any, target: np.ndarray | None = None, method: str = "predict") -> Callable[[Convert], Any]:
    """Return a function that fits the estimator to the samples, and calls one of its methods on them."""

    def call(convert: Convert) -> Any:
        estimator.fit(convert(SAMPLES), *([] if target is None else [convert(target)]))
        return getattr(estimator, method)(convert(SAMPLES))

    return call


def learning_calls() -> dict[str, Callable[[Convert], Any]]:
    """Return a call for each estimator and each other function, by its name."""
    from sklearn import decomposition, linear_model, metrics, mixture, model_selection, naive_bayes, preprocessing
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.kernel_approximation import Nystroem

    transforming = [
        preprocessing.StandardScaler(), preprocessing.MinMaxScaler(), preprocessing.MaxAbsScaler(),
        preprocessing.Normalizer(), preprocessing.Binarizer(), preprocessing.PolynomialFeatures(),
        Nystroem(n_components=5, random_state=0),
        *(decomposition.PCA(2, svd_solver=name) for name in ("full", "covariance_eigh")),
        decomposition.PCA(2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0),
    ]  # fmt: skip
    predicting = [
        (linear_model.Ridge(solver="svd"), TARGETS), (linear_model.RidgeCV(), TARGETS),
        (linear_model.RidgeClassifier(solver="svd"), CLASSES), (LinearDiscriminantAnalysis(), CLASSES),
        (naive_bayes.GaussianNB(), CLASSES),
    ]  # fmt: skip
    gaussians = mixture.GaussianMixture(2, init_params="random", random_state=0)
    return {
        **{str(estimator): fit(estimator, method="transform") for estimator in transforming},
        **{str(estimator): fit(estimator, target) for estimator, target in predicting},
        str(gaussians): fit(gaussians, method="predict_proba"),
        "KernelCenterer": lambda a: preprocessing.KernelCenterer().fit_transform(a(SAMPLES @ SAMPLES.T)),
        "LabelEncoder": lambda a: preprocessing.LabelEncoder().fit_transform(a(CLASSES)),
        "accuracy_score": lambda a: metrics.accuracy_score(a(CLASSES), a(GUESSES)),
        "f1_score": lambda a: metrics.f1_score(a(CLASSES), a(GUESSES)),
        "confusion_matrix": lambda a: metrics.confusion_matrix(a(CLASSES), a(GUESSES)),
        "mean_squared_error": lambda a: metrics.mean_squared_error(a(TARGETS), a(TARGETS + 1)),
        "r2_score": lambda a: metrics.r2_score(a(TARGETS), a(TARGETS * np.float32(0.9))),
        "euclidean_distances": lambda a: metrics.pairwise.euclidean_distances(a(SAMPLES), a(SAMPLES[:5])),
        "cosine_similarity": lambda a: metrics.pairwise.cosine_similarity(a(SAMPLES)),
        "rbf_kernel": lambda a: metrics.pairwise.rbf_kernel(a(SAMPLES)),
        "train_test_split": lambda a: model_selection.train_test_split(a(SAMPLES), a(CLASSES), random_state=0),
        "cross_val_predict": lambda a: model_selection.cross_val_predict(
            LinearDiscriminantAnalysis(), a(SAMPLES), a(CLASSES)
        ),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(os.environ.get("SCIPY_ARRAY_API") != "1", reason="needs SCIPY_ARRAY_API=1")
def test_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn")
    for name, call in learning_calls().items():
        with sklearn.config_context(array_api_dispatch=True):
            results = call(wg.tensor)
        try:
            assert_same(results, call(np.asarray), magnitudes="PCA" in name or "Nystroem" in name)
        except AssertionError as error:
            error.add_note(name)
            raise


# SciPy ----------------------------------------------------------------------------------------------------------------

SPECIAL = ("erf", "expit", "ndtr", "i0", "softmax", "log_softmax", "logsumexp")
STATISTICS = ("zscore", "skew", "kurtosis", "moment", "variation", "differential_entropy")


def scientific_calls() -> dict[str, Callable[[Any], Any]]:
    """Return a call of SciPy for each function, by its name."""
    import scipy

    special, stats = scipy.special, scipy.stats
    return {
        **{name: getattr(special, name) for name in SPECIAL},
        **{name: lambda x, name=name: getattr(stats, name)(x, axis=0) for name in STATISTICS},
        "gammaln": lambda x: special.gammaln(x * x + 1),
        "xlogy": lambda x: special.xlogy(x * x, x * x + 1),
        "entr": lambda x: special.entr(x * x),
        "gmean": lambda x: stats.gmean(x * x + 1, axis=0),
        "entropy": lambda x: stats.entropy(x * x, axis=0),
        "ttest_1samp": lambda x: stats.ttest_1samp(x, 0.0, axis=0).statistic,
        "trapezoid": lambda x: scipy.integrate.trapezoid(x, axis=0),
        "cumulative_trapezoid": lambda x: scipy.integrate.cumulative_trapezoid(x, axis=0),
        "detrend": lambda x: scipy.signal.detrend(x, axis=0),
        "whiten": lambda x: scipy.cluster.vq.whiten(x),
    }


@pytest.mark.skipif(os.environ.get("SCIPY_ARRAY_API") != "1", reason="needs SCIPY_ARRAY_API=1")
def test_scipy() -> None:
    pytest.importorskip("scipy.signal")
    pytest.importorskip("scipy.cluster.vq")
    for name, call in scientific_calls().items():
        try:
            assert_same(call(wg.tensor(SAMPLES)), call(SAMPLES))
        except AssertionError as error:
            error.add_note(name)
            raise


# array-api-compat -----------------------------------------------------------------------------------------------------


def test_array_api_compat() -> None:
    compat = pytest.importorskip("array_api_compat")
    x = wg.tensor(SAMPLES)
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x, x) is wg.array_api
    assert compat.device(x) == x.device
    assert compat.size(x) == SAMPLES.size
    assert compat.to_device(x, "cpu").tolist() == SAMPLES.tolist()
    with pytest.raises(TypeError, match="namespaces"):
        compat.array_namespace(x, SAMPLES)
