"""Recurrent operators: LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Sequence

import weftgrad as wg

from ...nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from ...runtime.tensor import Tensor
from .nodes import Node, NodeFunction

__all__ = ["RECURRENT_OPS"]

# The gates in our order, by their positions in ONNX's.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}


def _recurrent(node: Node) -> list[Tensor | None]:
    x, weight, recurrence = node[0], node[1], node[2]
    directions, hidden = recurrence.shape[0], recurrence.shape[2]
    is_batch_first = bool(node.attribute("layout", 0))
    function = _function(node, directions)
    if is_batch_first:
        x = x.transpose(0, 1)
    is_reverse = node.attribute("direction", "forward") == "reverse"
    lengths = _lengths(node, x.shape[0])
    if lengths is not None and function is _gru_with_early_reset:
        raise node.unsupported("sequences of different lengths with linear_before_reset=0")
    if is_reverse and lengths is not None:
        raise node.unsupported("sequences of different lengths in reverse direction only")
    if is_reverse:
        x = x.flip(0)
    states = [
        _state(node, i, x, directions, hidden, is_batch_first) for i in ((5, 6) if node.op_type == "LSTM" else (5,))
    ]
    parameters = _parameters(node, weight, recurrence, directions, hidden)
    if lengths is None:
        output, *finals = function(
            x, tuple(states) if len(states) > 1 else states[0], parameters, node.has(3), 1, 0.0, False, directions == 2
        )
    else:
        output, finals = _run_packed(function, x, lengths, states, parameters, node.has(3), directions)
    if is_reverse:
        output = output.flip(0)
    output = output.reshape(x.shape[0], x.shape[1], directions, hidden)
    if is_batch_first:
        return [output.transpose(0, 1), *(state.transpose(0, 1) for state in finals)]
    return [output.transpose(1, 2), *finals]


def _function(node: Node, directions: int):  # type: ignore[no-untyped-def]
    """Return the function that runs the network; raise `OnnxImportError` for options that it does not have."""
    activations = node.attribute("activations", None)
    default = _ACTIVATIONS.get(node.op_type, ["Tanh"]) * directions
    is_relu = node.op_type == "RNN" and activations == ["Relu"] * directions
    if activations not in (None, default) and not is_relu:
        raise node.unsupported(f"activations {activations}")
    for name in ("clip", "input_forget"):
        if node.attribute(name, 0):
            raise node.unsupported(f"the attribute {name!r}")
    if node.has(7):
        raise node.unsupported("peepholes")
    if node.op_type == "GRU" and not node.attribute("linear_before_reset", 0):
        return _gru_with_early_reset
    return {"LSTM": wg.lstm, "GRU": wg.gru}.get(node.op_type, wg.rnn_relu if is_relu else wg.rnn_tanh)


def _gru_with_early_reset(
    x: Tensor, state: Tensor, parameters: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    is_bidirectional: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Run a GRU that multiplies the state with the reset gate before the matrix product (Cho et al. 2014), in steps."""
    outputs, finals = [], []
    per_direction = 4 if has_biases else 2
    for d in range(1 + is_bidirectional):
        weight, recurrence, *biases = parameters[d * per_direction : (d + 1) * per_direction]
        hidden = state[d]
        width = hidden.shape[-1]
        input_bias, hidden_bias = biases or (None, None)
        products = wg.nn.functional.linear(x, weight, input_bias)
        steps = []
        for t in reversed(range(x.shape[0])) if d else range(x.shape[0]):
            gate_bias = None if hidden_bias is None else hidden_bias[: 2 * width]
            gates = products[t, :, : 2 * width] + wg.nn.functional.linear(hidden, recurrence[: 2 * width], gate_bias)
            reset, update = gates.sigmoid().chunk(2, -1)
            new_bias = None if hidden_bias is None else hidden_bias[2 * width :]
            product = wg.nn.functional.linear(reset * hidden, recurrence[2 * width :], new_bias)
            new = (products[t, :, 2 * width :] + product).tanh()
            hidden = new + update * (hidden - new)
            steps.append(hidden)
        outputs.append(wg.stack(steps[::-1] if d else steps))
        finals.append(hidden)
    return wg.cat(outputs, -1), wg.stack(finals)


def _lengths(node: Node, steps: int) -> list[int] | None:
    """Return the lengths of sequences, or None if all have all steps."""
    if not node.has(4):
        return None
    lengths: list[int] = node.integers(4)
    return None if set(lengths) == {steps} else lengths


def _state(node: Node, position: int, x: Tensor, directions: int, hidden: int, is_batch_first: bool) -> Tensor:
    if not node.has(position):
        return wg.zeros(directions, x.shape[1], hidden, dtype=x.dtype, device=x.device)
    return node[position].transpose(0, 1) if is_batch_first else node[position]


def _parameters(node: Node, weight: Tensor, recurrence: Tensor, directions: int, hidden: int) -> list[Tensor]:
    """Return weights and biases of each direction, with the gates in our order."""
    gates = _GATES[node.op_type]

    def reorder(rows: Tensor) -> Tensor:
        if len(gates) == 1:
            return rows
        return wg.cat([rows[gate * hidden : (gate + 1) * hidden] for gate in gates])

    parameters = []
    for d in range(directions):
        parameters += [reorder(weight[d]), reorder(recurrence[d])]
        if node.has(3):
            bias = node[3][d]
            half = len(gates) * hidden
            parameters += [reorder(bias[:half]), reorder(bias[half:])]
    return parameters


def _run_packed(  # type: ignore[no-untyped-def]
    function, x: Tensor, lengths: Sequence[int], states: Sequence[Tensor], parameters: Sequence[Tensor],
    has_biases: bool, directions: int,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Run sequences of different lengths. Steps after the end of a sequence give zeros."""
    packed = pack_padded_sequence(x, list(lengths), enforce_sorted=False)
    assert packed.sorted_indices is not None
    assert packed.unsorted_indices is not None
    initial = [state.index_select(1, packed.sorted_indices) for state in states]
    data, *finals = function(
        packed.data, packed.batch_sizes, tuple(initial) if len(initial) > 1 else initial[0], parameters, has_biases, 1,
        0.0, False, directions == 2,
    )  # fmt: skip
    output = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    padded, _ = pad_packed_sequence(output, total_length=x.shape[0])
    return padded, [state.index_select(1, packed.unsorted_indices) for state in finals]


RECURRENT_OPS: dict[str, NodeFunction] = {"LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent}
"""Functions by operator."""
