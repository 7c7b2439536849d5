"""Independent references of the ops in kinds.yaml, as a user writes them: NumPy functions of the ops' arguments."""

import numpy as np


def kinds_snake(input, alpha):
    return input + (1 - np.cos(2 * alpha * input)) / (2 * alpha)


def kinds_step(input, by):
    return input + by


def kinds_power(input, low, dim, keepdim):
    return np.sum(np.square(np.clip(input, low, None)), axis=dim, keepdims=keepdim)


def kinds_mean(input, dim, keepdim):
    return np.mean(input, axis=dim, keepdims=keepdim)


def kinds_unit_rows(input, weight, dim):
    rows = np.moveaxis(input, dim, -1)
    length = np.linalg.norm(rows, axis=-1, keepdims=True) / np.sqrt(rows.shape[-1])
    return np.moveaxis(rows / np.hypot(length, np.sqrt(1e-3)) * weight, -1, dim)


def kinds_running(input, dim, reverse):
    return np.flip(np.cumsum(np.flip(input, dim), dim), dim) if reverse else np.cumsum(input, dim)


def kinds_product(x, y, scale):
    return scale * (x @ y)


def kinds_layer(x, y, alpha):
    return kinds_snake(kinds_product(x, y, 2.0), alpha)


ARGUMENTS = {
    "kinds_layer": lambda rng: {
        "x": rng.normal(size=(5, 3)),
        "y": rng.normal(size=(3, 7)),
        "alpha": rng.uniform(0.5, 2, 7),
    }
}
