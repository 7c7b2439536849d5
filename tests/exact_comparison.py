"""An exact comparison of tensors with arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["assert_equal"]


def assert_equal(actual: Any, expected: Any) -> None:
    """Check that elements, shape and dtype are equal, in every tensor of a tuple or list."""
    if isinstance(actual, (tuple, list)):
        assert len(actual) == len(expected)
        for actual_part, expected_part in zip(actual, expected, strict=True):
            assert_equal(actual_part, expected_part)
        return
    array = actual.detach().numpy()
    assert array.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(array, expected)
