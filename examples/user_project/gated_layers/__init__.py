"""Layers over the ops of specs/gated.yaml, from which `weftgrad generate` writes the package `gated_layers.ops`."""

import weftgrad as wg
from weftgrad import nn

from .ops import gated_rms_norm, swiglu

__all__ = ["GatedRMSNorm", "SwiGLU", "gated_rms_norm", "swiglu"]


class SwiGLU(nn.Module):
    """Two linear layers with a gated activation in between, as in the feed-forward layers of Llama.

    Args:
        features: Size of the last dimension of input and output.
        hidden: Size of the hidden layer. The first linear layer computes it twice, as values and as gates.

    Example:
        >>> SwiGLU(8, 32)(wg.ones(2, 8)).shape
        weftgrad.Size([2, 8])
    """

    def __init__(self, features, hidden):
        super().__init__()
        self.values_and_gates = nn.Linear(features, 2 * hidden)
        self.output = nn.Linear(hidden, features)

    def forward(self, x):
        values, gates = self.values_and_gates(x).chunk(2, -1)
        return self.output(swiglu(values, gates))


class GatedRMSNorm(nn.Module):
    """Gate the input, divide each row by its root mean square, and scale each feature by a learned weight.

    Args:
        features: Size of the last dimension, which is normalized.
        eps: Number that is added to the mean square.

    Example:
        >>> GatedRMSNorm(8)(wg.ones(2, 8), wg.ones(2, 8)).shape
        weftgrad.Size([2, 8])
    """

    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(wg.ones(features))
        self.eps = eps

    def forward(self, x, gate):
        return gated_rms_norm(x, gate, self.weight.shape, self.weight, self.eps)
