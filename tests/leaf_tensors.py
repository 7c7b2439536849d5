"""Tensors in float64 that require gradients, for tests of tensors' semantics."""

from __future__ import annotations

from typing import Any

import numpy as np

import weftgrad as wg

__all__ = ["leaf"]

VALUES = np.random.default_rng(0).uniform(0.5, 2, (4, 5))


def leaf(values: Any = VALUES) -> Any:
    """Return a tensor on `cpu` that requires a gradient."""
    return wg.tensor(values, dtype=wg.float64, device="cpu", requires_grad=True)
