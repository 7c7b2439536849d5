"""Tensors on `cpu`, and the slots of results, for tests of the C implementation."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import native

__all__ = ["cpu", "needs_c", "run_program"]

needs_c = pytest.mark.skipif(not native.present, reason="compiled without C")


def cpu(*shape: int, grad: bool = False, dtype: Any = None) -> Any:
    count = int(np.prod(shape, dtype=int))
    return wg.tensor((np.arange(count) % 7 - 3).reshape(shape), device="cpu", dtype=dtype or wg.float32).requires_grad_(
        grad
    )


def run_program(text: str, native: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=300,
        env={**os.environ, "WEFTGRAD_NATIVE": native},
    )  # fmt: skip
