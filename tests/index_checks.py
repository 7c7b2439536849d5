"""Arrays, leaves and exact comparisons for tests of indexing, and whether they run with GPU schedules."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

__all__ = ["IS_NESTED", "NESTED_VARIABLE", "ONLY_ONCE", "assert_equal", "host", "numbers", "synchronized"]

NESTED_VARIABLE = "WEFTGRAD_TEST_INDEXING_NESTED"  # set in the process that the last test starts
IS_NESTED = NESTED_VARIABLE in os.environ
ONLY_ONCE = pytest.mark.skipif(IS_NESTED, reason="other tests cover these kernels")


def host(tensor: Any) -> np.ndarray[Any, Any]:
    return tensor.detach().cpu().numpy()


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return 1, 2, 3, ... in a shape."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


def assert_equal(actual: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert tuple(actual.shape) == expected.shape
    assert np.array_equal(host(actual), expected)


def synchronized(tensor: Any) -> Any:
    """Return `tensor` after waiting for the device, which then reports invalid indices."""
    wg.synchronize()
    return tensor
