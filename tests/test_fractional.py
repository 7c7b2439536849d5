"""Check fractional max pooling against loops in NumPy."""

import math

import numpy as np
import pytest

import weftgrad as wg
from weftgrad import nn

F = nn.functional


def window_starts(sample, size, kernel, count):
    """Return where windows begin (Graham, "Fractional Max-Pooling", 2014), in float32 as the samples are."""
    if count == 1:
        return [size - kernel]
    step = np.float32((size - kernel) / (count - 1))
    return [*(int((np.float32(i) + sample) * step) - int(sample * step) for i in range(count - 1)), size - kernel]


def test_windows_begin_where_the_samples_say():
    rng = np.random.default_rng(2)
    x = rng.permutation(2 * 3 * 9 * 7).reshape(2, 3, 9, 7).astype(np.float32)
    samples = rng.random((2, 3, 2)).astype(np.float32)
    images = wg.tensor(x, requires_grad=True)
    layer = nn.FractionalMaxPool2d((3, 2), (4, 5), return_indices=True, _random_samples=wg.tensor(samples))
    output, indices = layer(images)
    expected_grad = np.zeros_like(x)
    for n in range(2):
        for c in range(3):
            rows, columns = window_starts(samples[n, c, 1], 9, 3, 4), window_starts(samples[n, c, 0], 7, 2, 5)
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    window = x[n, c, row : row + 3, column : column + 2]
                    assert output[n, c, i, j].item() == window.max()
                    position = np.argwhere(x[n, c] == window.max())[0]
                    assert indices[n, c, i, j].item() == position[0] * 7 + position[1]
                    expected_grad[n, c, position[0], position[1]] += 1
    output.sum().backward()
    np.testing.assert_array_equal(images.grad.numpy(), expected_grad)


def test_sizes_are_drawn_or_refused():
    x = wg.tensor(np.arange(3 * 6 * 6 * 6, dtype=np.float32).reshape(3, 6, 6, 6))
    wg.manual_seed(1)
    output, indices = F.fractional_max_pool3d(x, 2, output_ratio=0.5, return_indices=True)
    assert output.shape == (3, 3, 3, 3)
    assert (x.reshape(3, -1).gather(1, indices.reshape(3, -1)).numpy() == output.reshape(3, -1).numpy()).all()
    expected_last = [int(math.prod((6, 6, 6))) * (c + 1) - 1 for c in range(3)]
    assert output[:, -1, -1, -1].tolist() == expected_last  # the last window ends at the last input element
    for error, call in (
        (ValueError, lambda: F.fractional_max_pool2d(x, 2)), (RuntimeError, lambda: F.fractional_max_pool2d(x, 3, 5)),
        (ValueError, lambda: nn.FractionalMaxPool2d(2)), (ValueError, lambda: nn.FractionalMaxPool2d(2, 3, 0.5)),
        (ValueError, lambda: nn.FractionalMaxPool3d(2, output_ratio=1.5)),
        (ValueError, lambda: nn.FractionalMaxPool3d(0, 2)), (RuntimeError, lambda: F.fractional_max_pool3d(x[0], 2, 2)),
        (RuntimeError, lambda: F.fractional_max_pool2d(x, 2, 3, None, False, wg.rand(1))),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
