"""References of the ops in specs/gated.yaml, with which tests/test_ops.py compares their results.

A reference has the name of its op and gets the op's arguments by name, as NumPy arrays in float64. It is written
without a look at the spec's formula, so that a mistake there shows.
"""

import numpy as np


def silu(x):
    """Return x times the logistic function of x."""
    return x / (1 + np.exp(-x))


def swiglu(input, gate):
    return input * silu(gate)


def gated_rms_norm(input, gate, normalized_shape, weight, eps):
    axes = tuple(range(-len(normalized_shape), 0))
    product = input * silu(gate)
    return product / np.sqrt(np.mean(product**2, axis=axes, keepdims=True) + eps) * weight
