"""Softmax in NumPy."""

import numpy as np

__all__ = ["softmax"]


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
