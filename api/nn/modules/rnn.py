"""Recurrent layers, under PyTorch's module path."""

from __future__ import annotations

from ..recurrent import GRU, LSTM, RNN, RNNBase
from ..recurrent_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "GRUCell",
    "LSTMCell",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
]
