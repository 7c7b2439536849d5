"""Recurrent networks by their equations, a sequence and a step at a time, in float64 NumPy: what tests compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = Any


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def step(mode: str, own: Mapping[str, Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """The states after a step of one sequence. own: parameters by name, without layer and direction."""
    zero = np.zeros(len(own["weight_ih"]))
    given = own["weight_ih"] @ x + own.get("bias_ih", zero)
    product = own["weight_hh"] @ h + own.get("bias_hh", zero)
    if mode == "LSTM":
        i, f, g, o = np.split(given + product, 4)
        c = _logistic(f) * c + _logistic(i) * np.tanh(g)
        h = _logistic(o) * np.tanh(c)
        return own["weight_hr"] @ h if "weight_hr" in own else h, c
    if mode == "GRU":
        (xr, xz, xn), (hr, hz, hn) = np.split(given, 3), np.split(product, 3)
        z = _logistic(xz + hz)
        return (1 - z) * np.tanh(xn + _logistic(xr + hr) * hn) + z * h, c
    return (np.tanh if mode == "RNN_TANH" else lambda x: np.maximum(x, 0))(given + product), c


def network(
    mode: str,
    state: Mapping[str, Array],
    sequences: Sequence[Array],
    h0: Array,
    c0: Array,
    layers: int,
    directions: int,
) -> tuple[list[Array], Array, Array]:
    """(outputs, h_n, c_n): of each sequence (length, input) its output (length, directions x size)."""
    h_n, c_n = h0.copy(), c0.copy()
    outputs = []
    for n, sequence in enumerate(sequences):
        inputs = sequence
        for layer in range(layers):
            columns = []
            for d in range(directions):
                end = f"_l{layer}" + "_reverse" * d
                own = {k.removesuffix(end): v for k, v in state.items() if k.endswith(end)}
                at = layer * directions + d
                h, c = h0[at, n], c0[at, n]
                found = []
                for x in inputs[::-1] if d else inputs:
                    h, c = step(mode, own, x, h, c)
                    found.append(h)
                columns.append(np.stack(found[::-1] if d else found))
                h_n[at, n], c_n[at, n] = h, c
            inputs = np.concatenate(columns, 1)
        outputs.append(inputs)
    return outputs, h_n, c_n
