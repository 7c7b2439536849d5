"""Rows for recurrent layers, and for packing and padding sequences of different lengths.

PyTorch packs sequences sorted by length. ONNX runs recurrent layers over padded sequences in any order, and takes their
lengths. So packed sequences become padded ones with lengths, and the permutations that sort them become the identity.
"""

from __future__ import annotations

import numpy as np

from ...runtime import dtypes
from ..errors import UnsupportedOperatorError
from .conversion import Conversion, RowResult, Rows
from .dynamic_sizes import as_int
from .graph import Value
from .memory import Missing, Packed
from .view_rows import reshape

__all__ = ["RECURRENT_ROWS"]

# Operator, order of the gates in it by their index here, and further attributes of each kind of cell.
_CELLS: dict[str, tuple[str, tuple[int, ...], dict[str, object]]] = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),  # i, f, g, o here; i, o, f, g there
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),  # r, z, n here; z, r, n there
    "rnn_tanh": ("RNN", (0,), {}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
}
_WEIGHTS = 5  # operands of each direction: weight_ih, weight_hh, bias_ih, bias_hh, weight_hr


def _recurrent_layer(c: Conversion) -> RowResult:
    graph = c.graph
    op_type, order, attributes = _CELLS[c.static("cell")]
    directions = c.static("directions")
    first = [3 + d * _WEIGHTS for d in range(directions)]
    if any(c.has(p + 4) for p in first):
        raise c.unsupported("a projection of the hidden state (proj_size); ONNX has no operator for it")
    hidden = as_int(c.shape(first[0] + 1)[1], "the hidden size")
    rows = np.concatenate([np.arange(gate * hidden, (gate + 1) * hidden) for gate in order])
    weights = [_stack(c, [_reorder(c, p + offset, rows) for p in first]) for offset in (0, 1)]
    bias = ""
    if c.has(first[0] + 2):
        parts = [[_reorder(c, p + offset, rows) for offset in (2, 3)] for p in first]
        bias = _stack(c, [graph.op("Concat", *pair, axis=0) for pair in parts])
    source = c.read("input")
    lengths = source.lengths if isinstance(source, Packed) else ""
    states = [c.input(name) for name in ("h_0", "c_0") if c.has(name)]
    features = c.shape("input")[1]
    if isinstance(source, Packed):
        padded = source.padded
    elif c.static("length") is None:
        raise c.unsupported("packed sequences that pack_padded_sequence has not packed")
    else:
        steps = (c.static("length"), c.static("batch"), features)
        padded = reshape(graph, source, c.shape("input"), steps)
    if directions == 2 and "activations" in attributes:
        attributes = {**attributes, "activations": ["Relu", "Relu"]}
    out, *finals = graph.node(
        op_type, [padded, *weights, bias, lengths, *states], 1 + len(states), hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward", **attributes,
    )  # fmt: skip
    # (length, directions, batch, hidden) to (length, batch, directions * hidden)
    steps_first = graph.op("Transpose", out, perm=[0, 2, 1, 3])
    if isinstance(source, Packed):
        merged = graph.op("Reshape", steps_first, graph.ints([0, 0, -1]))
        return [Packed(merged, source.lengths), *finals]
    shape = (c.static("length"), c.static("batch"), directions, hidden)
    return [reshape(graph, steps_first, shape, c.results[0].shape), *finals]


def _reorder(c: Conversion, position: int, rows: np.ndarray) -> Value:
    """Return a weight with its gates in ONNX's order."""
    value = c.input(position)
    if (rows == np.arange(len(rows))).all():
        return value
    return c.graph.op("Gather", value, c.graph.constant(rows.astype(np.int64)), axis=0)


def _stack(c: Conversion, values: list[Value]) -> Value:
    parts = [c.graph.op("Unsqueeze", value, c.graph.ints([0])) for value in values]
    return parts[0] if len(parts) == 1 else c.graph.op("Concat", *parts, axis=0)


def _pack(c: Conversion) -> RowResult:
    graph, ndim = c.graph, len(c.shape("input"))
    padded = c.input("input")
    if c.static("batch_first"):
        padded = graph.op("Transpose", padded, perm=[1, 0, *range(2, ndim)])
    lengths = c.cast_input("lengths", dtypes.int32)
    error = UnsupportedOperatorError(f"export: {c.where}: batch sizes of packed sequences cannot be expressed")
    batch = graph.op("Squeeze", c.sizes([c.shape("lengths")[0]]), graph.ints([0]))
    identity = graph.op("Range", graph.number(0, dtypes.int64), batch, graph.number(1, dtypes.int64))
    return [Packed(padded, lengths), Missing(error), identity, identity]


def _pad(c: Conversion) -> RowResult:
    graph, source = c.graph, c.read("data")
    if not isinstance(source, Packed):
        raise c.unsupported("sequences that pack_padded_sequence has not packed")
    if c.static("padding_value") != 0:
        raise c.unsupported("a padding value other than 0")
    value = source.padded
    if c.static("total_length") is None:  # the longest sequence's
        longest = graph.op("ReduceMax", graph.cast(source.lengths, dtypes.int32, dtypes.int64), keepdims=1)
        value = graph.op("Slice", value, graph.ints([0]), longest, graph.ints([0]))
    if c.static("batch_first"):
        value = graph.op("Transpose", value, perm=[1, 0, *range(2, len(c.results[0].shape))])
    return [value, graph.cast(source.lengths, dtypes.int32, dtypes.int64)]


RECURRENT_ROWS: Rows = {"recurrent_layer": _recurrent_layer, "pack_padded_sequence": _pack, "pad_packed_sequence": _pad}
