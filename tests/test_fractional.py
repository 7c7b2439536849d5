"""Fractional max pooling against loops in NumPy."""

import math

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn

F = nn.functional


def places(drawn, size, kernel, count):
    """Where windows begin (Graham 2014), in float32 as the samples are."""
    if count == 1:
        return [size - kernel]
    apart = np.float32((size - kernel) / (count - 1))
    return [*(int((np.float32(i) + drawn) * apart) - int(drawn * apart) for i in range(count - 1)), size - kernel]


def test_windows_are_where_the_samples_say():
    rng = np.random.default_rng(2)
    x = rng.permutation(2 * 3 * 9 * 7).reshape(2, 3, 9, 7).astype(np.float32)
    samples = rng.random((2, 3, 2)).astype(np.float32)
    given = wg.tensor(x, requires_grad=True)
    layer = nn.FractionalMaxPool2d((3, 2), (4, 5), return_indices=True, _random_samples=wg.tensor(samples))
    found, indices = layer(given)
    slope = np.zeros_like(x)
    for n in range(2):
        for c in range(3):
            rows, columns = places(samples[n, c, 1], 9, 3, 4), places(samples[n, c, 0], 7, 2, 5)
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    window = x[n, c, row : row + 3, column : column + 2]
                    assert found[n, c, i, j].item() == window.max()
                    at = np.argwhere(x[n, c] == window.max())[0]
                    assert indices[n, c, i, j].item() == at[0] * 7 + at[1]
                    slope[n, c, at[0], at[1]] += 1
    found.sum().backward()
    np.testing.assert_array_equal(given.grad.numpy(), slope)


def test_sizes_are_drawn_or_refused():
    x = wg.tensor(np.arange(3 * 6 * 6 * 6, dtype=np.float32).reshape(3, 6, 6, 6))
    wg.manual_seed(1)
    found, indices = F.fractional_max_pool3d(x, 2, output_ratio=0.5, return_indices=True)
    assert found.shape == (3, 3, 3, 3)
    assert (x.reshape(3, -1).gather(1, indices.reshape(3, -1)).numpy() == found.reshape(3, -1).numpy()).all()
    last = [int(math.prod((6, 6, 6))) * (c + 1) - 1 for c in range(3)]
    assert found[:, -1, -1, -1].tolist() == last  # the last window ends with the input
    for error, call in (
        (ValueError, lambda: F.fractional_max_pool2d(x, 2)), (RuntimeError, lambda: F.fractional_max_pool2d(x, 3, 5)),
        (ValueError, lambda: nn.FractionalMaxPool2d(2)), (ValueError, lambda: nn.FractionalMaxPool2d(2, 3, 0.5)),
        (ValueError, lambda: nn.FractionalMaxPool3d(2, output_ratio=1.5)),
        (ValueError, lambda: nn.FractionalMaxPool3d(0, 2)), (RuntimeError, lambda: F.fractional_max_pool3d(x[0], 2, 2)),
        (RuntimeError, lambda: F.fractional_max_pool2d(x, 2, 3, None, False, wg.rand(1))),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
