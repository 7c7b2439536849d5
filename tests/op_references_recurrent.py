"""Independent references for the gates of recurrent networks, from the equations of the papers, in NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

Array = Any


def _rnn(act: Callable[[Array], Array]) -> Callable[..., Any]:
    """Return the reference of `h' = act(x + h)`, whose result the op stores twice: as output and as next state."""

    def step(x: Array, h: Array) -> tuple[Array, ...]:
        return (act(x + h),) * 2

    return step


def _lstm(xi: Array, xf: Array, xg: Array, xo: Array, hi: Array, hf: Array, hg: Array, ho: Array, c: Array) -> Any:
    """Return the output, the next hidden state, the next cell state, and the four gates."""
    i, f, o = sp.expit(xi + hi), sp.expit(xf + hf), sp.expit(xo + ho)
    g = np.tanh(xg + hg)
    next_cell = f * c + i * g
    return o * np.tanh(next_cell), o * np.tanh(next_cell), next_cell, i, f, g, o


def _gru(xr: Array, xz: Array, xn: Array, hr: Array, hz: Array, hn: Array, bias: Array, h: Array) -> Any:
    r, z = sp.expit(xr + hr), sp.expit(xz + hz)
    n = np.tanh(xn + r * (hn + bias))
    return (*(((1 - z) * n + z * h),) * 3, r, z, n)


RECURRENT_REFERENCES: dict[str, Callable[..., Any]] = {
    "rnn_tanh_gate": _rnn(np.tanh),
    "rnn_relu_gate": _rnn(lambda x: np.maximum(x, 0)),
    "lstm_gates": _lstm,
    "gru_gates": _gru,
}
