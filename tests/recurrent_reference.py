"""Reference of recurrent networks: their equations in float64 NumPy, one sequence and one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = Any


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def step(mode: str, parameters: Mapping[str, Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Return the states (h, c) after one step. parameters: by name, without the suffix for layer and direction."""
    zero = np.zeros(len(parameters["weight_ih"]))
    from_input = parameters["weight_ih"] @ x + parameters.get("bias_ih", zero)
    from_state = parameters["weight_hh"] @ h + parameters.get("bias_hh", zero)
    if mode == "LSTM":
        i, f, g, o = np.split(from_input + from_state, 4)
        c = _logistic(f) * c + _logistic(i) * np.tanh(g)
        h = _logistic(o) * np.tanh(c)
        return parameters["weight_hr"] @ h if "weight_hr" in parameters else h, c
    if mode == "GRU":
        (xr, xz, xn), (hr, hz, hn) = np.split(from_input, 3), np.split(from_state, 3)
        z = _logistic(xz + hz)
        return (1 - z) * np.tanh(xn + _logistic(xr + hr) * hn) + z * h, c
    return (np.tanh if mode == "RNN_TANH" else lambda x: np.maximum(x, 0))(from_input + from_state), c


def network(
    mode: str,
    state: Mapping[str, Array],
    sequences: Sequence[Array],
    h0: Array,
    c0: Array,
    layers: int,
    directions: int,
) -> tuple[list[Array], Array, Array]:
    """Return (outputs, h_n, c_n). Each sequence (length, input) gives an output (length, directions * size)."""
    h_n, c_n = h0.copy(), c0.copy()
    outputs = []
    for n, sequence in enumerate(sequences):
        inputs = sequence
        for layer in range(layers):
            columns = []
            for d in range(directions):
                suffix = f"_l{layer}" + "_reverse" * d
                parameters = {k.removesuffix(suffix): v for k, v in state.items() if k.endswith(suffix)}
                state_index = layer * directions + d
                h, c = h0[state_index, n], c0[state_index, n]
                hidden_states = []
                for x in inputs[::-1] if d else inputs:
                    h, c = step(mode, parameters, x, h, c)
                    hidden_states.append(h)
                columns.append(np.stack(hidden_states[::-1] if d else hidden_states))
                h_n[state_index, n], c_n[state_index, n] = h, c
            inputs = np.concatenate(columns, 1)
        outputs.append(inputs)
    return outputs, h_n, c_n
