"""What tests of backward share: a choice of its engine, leaves, and a count of launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import native
from weftgrad.runtime.autograd import engine
from weftgrad.runtime.device import device

__all__ = ["count_launches", "either_engine", "leaf"]


@pytest.fixture(params=["c", "python"])
def either_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with the steps of backward in C, and with those in Python."""
    if request.param == "python":
        monkeypatch.setattr(engine, "_advance", None)
    elif not native.present:
        pytest.skip("compiled without C")
    return str(request.param)


def leaf(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    values = np.random.default_rng((seed, *shape)).uniform(0.2, 1.5, shape)
    return wg.tensor(values, dtype=dtype or wg.float32, device="cpu").requires_grad_()


def count_launches(work: Callable[[], object]) -> int:
    work()  # plans and compiles
    wg.cpu.synchronize()
    driver = device("cpu").driver
    before = driver.launches
    work()
    return int(driver.launches - before)
