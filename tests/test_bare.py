"""The replacement of SciPy for bare machines agrees with SciPy, and a package made of links works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bare
import bare_special
import numpy as np
import pytest

EXTREMES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-30, -1e-30, 1e4, -1e4])
WIDE = np.concatenate([np.linspace(-9, 9, 733), np.logspace(-8, 4, 200), -np.logspace(-8, 2, 200)])


@pytest.mark.parametrize("name", ["erf", "erfc", "expit", "gammaln", "log_expit", "ndtr", "psi"])
def test_functions_of_one_argument(name: str) -> None:
    scipy_special = pytest.importorskip("scipy.special")
    if not hasattr(scipy_special, "__file__"):
        pytest.skip("SciPy is not installed: it is the replacement itself")
    x = np.concatenate([WIDE, EXTREMES])
    with np.errstate(all="ignore"):
        expected = getattr(scipy_special, name)(x)
    np.testing.assert_allclose(getattr(bare_special, name)(x), expected, rtol=2e-13, atol=1e-15)


def test_other_functions() -> None:
    scipy_special = pytest.importorskip("scipy.special")
    y = np.concatenate([np.linspace(-1, 1, 501), 1 - np.logspace(-15, -1, 50), np.logspace(-12, -1, 50), [np.nan, 2.0]])
    np.testing.assert_allclose(bare_special.erfinv(y), scipy_special.erfinv(y), rtol=2e-13, atol=1e-18)
    x = np.logspace(-3, 3, 200)
    for n in range(5):
        np.testing.assert_allclose(bare_special.polygamma(n, x), scipy_special.polygamma(n, x), rtol=2e-13, atol=1e-15)
    a = np.random.default_rng(0).standard_normal((4, 5, 6)) * 30
    for axis in (0, -1):
        for name in ("softmax", "log_softmax", "logsumexp"):
            np.testing.assert_allclose(
                getattr(bare_special, name)(a, axis=axis), getattr(scipy_special, name)(a, axis=axis),
                rtol=1e-12, atol=1e-300,
            )  # fmt: skip
    operands = np.array([0.0, 0.0, 0.0, 2.0, np.nan]), np.array([0.0, np.nan, np.inf, 3.0, 1.0])
    np.testing.assert_allclose(bare_special.xlogy(*operands), scipy_special.xlogy(*operands))
    assert set(bare_special.__all__) <= set(dir(scipy_special))


@pytest.mark.thorough
def test_a_linked_package(tmp_path: Path) -> None:
    """A package of links to the source folders works without an installation."""
    if not (bare.ROOT / "codegen").is_dir():
        pytest.skip("needs the checkout")
    folder = bare.link(tmp_path / "package")
    code = "import weftgrad as wg; print(wg.__file__, wg.zeros(2, device='cpu').tolist(), wg.add)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(folder) in process.stdout
    assert "[0.0, 0.0]" in process.stdout
    process = subprocess.run(
        [sys.executable, "-m", "weftgrad.cli", "bench", "--help"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "--markdown" in process.stdout
