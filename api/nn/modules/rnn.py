"""Recurrent layers, under the path that PyTorch has them at."""

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
