"""Recurrent networks by their equations, in NumPy, one sequence and one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = Any


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def step(mode: str, parameters: Mapping[str, Array], x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """Return the states (h, c) after one step of one layer in one direction.

    Args:
        mode: `LSTM`, `GRU`, `RNN_TANH` or `RNN_RELU`.
        parameters: Weights and biases by their names without the suffix, such as `weight_ih`.
        x: Input, of shape (input size,).
        h: Hidden state, of shape (hidden size,), or (projection size,) if there is a `weight_hr`.
        c: Cell state of an LSTM, of shape (hidden size,). The others return it unchanged.
    """
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
    """Run all layers on a batch of N sequences.

    Args:
        mode: `LSTM`, `GRU`, `RNN_TANH` or `RNN_RELU`.
        state: Weights and biases by the names of `state_dict`, such as `weight_ih_l0_reverse`.
        sequences: Arrays of shape (length, input size); lengths may differ.
        h0: Initial hidden states, of shape (layers * directions, N, size).
        c0: Initial cell states, of shape (layers * directions, N, hidden size).
        layers: Number of layers.
        directions: 1 or 2.

    Returns:
        For each sequence an output of shape (length, directions * size); and the final hidden and cell states.
    """
    h_n, c_n = h0.copy(), c0.copy()
    outputs = []
    for n, sequence in enumerate(sequences):
        inputs = sequence
        for layer in range(layers):
            outputs_by_direction = []
            for d in range(directions):
                suffix = f"_l{layer}" + "_reverse" * d
                parameters = {k.removesuffix(suffix): v for k, v in state.items() if k.endswith(suffix)}
                state_index = layer * directions + d
                h, c = h0[state_index, n], c0[state_index, n]
                hidden_states = []
                for x in inputs[::-1] if d else inputs:
                    h, c = step(mode, parameters, x, h, c)
                    hidden_states.append(h)
                outputs_by_direction.append(np.stack(hidden_states[::-1] if d else hidden_states))
                h_n[state_index, n], c_n[state_index, n] = h, c
            inputs = np.concatenate(outputs_by_direction, 1)
        outputs.append(inputs)
    return outputs, h_n, c_n
