"""Recurrent networks as functions: whole networks and single cells. Names and arguments are PyTorch's.

The parameters of a network are one flat list, ordered by layer and then by direction. Each direction contributes
weight_ih, weight_hh; with biases also bias_ih, bias_hh; with a projection also weight_hr. `nn.RNN`, `nn.LSTM` and
`nn.GRU` own such lists. `runtime.recurrent` runs one direction, `recurrent_graph` records a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, overload

from .._generated import ops
from ..runtime import views
from ..runtime.autocast import match_autocast_dtype
from ..runtime.context import state
from ..runtime.dispatch import call
from ..runtime.dtypes import float64
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..runtime.records import registry
from ..runtime.recurrent.directions import CELL_KINDS, CellKind, Weights
from ..runtime.recurrent.steps import Geometry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors
from .recurrent_graph import layer

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell"]


_Shifted: TypeAlias = Any
"""A parameter that holds the argument before it in packed calls, whose second argument is `batch_sizes`."""


@overload
def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def lstm(
    data: Tensor,
    batch_sizes: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    /,
) -> tuple[Tensor, Tensor, Tensor]: ...
def lstm(
    input: Tensor,
    hx: _Shifted,
    params: _Shifted,
    has_biases: _Shifted,
    num_layers: _Shifted,
    dropout: _Shifted,
    train: _Shifted,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a multi-layer LSTM over a batch of sequences.

    The equations are those of Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gates of Gers
    et al. 2000; the projection is that of Sak et al. 2014. For a `PackedSequence` call
    `lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`.

    Args:
        input: `(T, N, input_size)`, or `(N, T, input_size)` with `batch_first`.
        hx: `h_0` of shape `(layers * directions, N, hidden or projected)` and `c_0` of shape
            `(layers * directions, N, hidden)`.
        params: Flat list of parameters, by layer and then direction: weight_ih, weight_hh, with biases also bias_ih,
            bias_hh, with a projection also weight_hr.
        has_biases: Whether `params` has biases.
        num_layers: Number of layers.
        dropout: Probability of dropout between layers, used if `train` is true.
        train: Whether the network is being trained.
        bidirectional: Whether each layer also runs backwards in time.
        batch_first: Whether the batch is the first dimension of input and output.

    Returns:
        `(output, h_n, c_n)`: output `(T, N, directions * (hidden or projected))`, states shaped like `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> state = wg.zeros(1, 2, 5)
        >>> weights = [wg.ones(20, 3), wg.ones(20, 5)]
        >>> output, h, c = wg.lstm(wg.ones(7, 2, 3), (state, state), weights, False, 1, 0.0, False, False)
        >>> output.shape, h.shape
        (weftgrad.Size([7, 2, 5]), weftgrad.Size([1, 2, 5]))
    """
    out, states = _run_network(
        "lstm", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )
    h_n, c_n = states
    return out, h_n, c_n


class _SingleStateNetwork(Protocol):
    """A network without a cell state, in both forms of the call."""

    __name__: str
    __qualname__: str

    @overload
    def __call__(
        self,
        input: Tensor,
        hx: Tensor,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self,
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        /,
    ) -> tuple[Tensor, Tensor]: ...


def _single_state_network(name: str, kind: str) -> _SingleStateNetwork:
    """Return the public function of a network without a cell state. `kind` describes the network in its docstring."""

    def network(
        input: Tensor,
        hx: _Shifted,
        params: _Shifted,
        has_biases: _Shifted,
        num_layers: _Shifted,
        dropout: _Shifted,
        train: _Shifted,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor]:
        out, states = _run_network(
            name, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )
        return out, states[0]

    network.__name__ = network.__qualname__ = name
    network.__doc__ = f"""Run {kind} over a batch of sequences.

    For a `PackedSequence` call `{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
    bidirectional)`. The arguments are those of `lstm`, except that `hx` is one tensor.

    Args:
        input: `(T, N, input_size)`, or `(N, T, input_size)` with `batch_first`.
        hx: Initial states, `(layers * directions, N, hidden)`.
        params: Flat list of parameters, by layer and then direction: weight_ih, weight_hh, with biases also bias_ih,
            bias_hh.

    Returns:
        `(output, h_n)`: output `(T, N, directions * hidden)`, states shaped like `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.
    """
    return network


gru = _single_state_network("gru", "a network of gated recurrent units (Cho et al. 2014)")
rnn_tanh = _single_state_network("rnn_tanh", "an Elman network (Elman 1990) with tanh")
rnn_relu = _single_state_network("rnn_relu", "an Elman network (Elman 1990) with ReLU")


def _run_network(name: str, *arguments: _Shifted) -> tuple[Tensor, list[Tensor]]:
    """Run a network from either of PyTorch's two signatures: with `batch_first`, or packed with `batch_sizes`.

    Return the output and the final states: h_n, and c_n of an LSTM.

    The position of the list of parameters tells them apart.
    """
    kind = CELL_KINDS[name]
    if isinstance(arguments[2], Tensor) or (kind.cell and isinstance(arguments[1], Tensor)):
        data, batch_sizes, hx, params, biases, layers, dropout, train, bidirectional = arguments
        sizes = batch_sizes.tolist() if isinstance(batch_sizes, Tensor) else list(batch_sizes)
        return _check_and_run(kind, data, sizes, hx, params, biases, layers, dropout, train, bidirectional)
    input, hx, params, biases, layers, dropout, train, bidirectional, batch_first = arguments
    only_tensors(name, input)
    if input.meta.ndim != 3:
        raise ShapeError(f"{name}: the input must have 3 dimensions, not shape {list(input.meta.shape)}")
    time_first = ops.transpose(input, 0, 1) if batch_first else input
    length, batch, features = time_first.meta.shape
    if not length:
        raise ShapeError(f"{name}: the sequence has no steps: the input has shape {list(input.meta.shape)}")
    rows = views.reshape(time_first, (length * batch, features))
    out, final_states = _check_and_run(
        kind, rows, [batch] * length, hx, params, biases, layers, dropout, train, bidirectional
    )
    out = views.reshape(out, (length, batch, out.meta.shape[1]))
    return ops.transpose(out, 0, 1) if batch_first else out, final_states


def _check_and_run(
    kind: CellKind, x: Tensor, sizes: list[int], hx: Tensor | Sequence[Tensor], params: Sequence[Tensor], biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Check the arguments, then run the network on x, `(rows, input_size)`; step t has `sizes[t]` of the rows."""
    states = (hx,) if isinstance(hx, Tensor) and not kind.cell else tuple(hx)
    if len(states) != 1 + kind.cell:
        raise ArgumentError(f"{kind.name}: hx must be h_0{' and c_0' if kind.cell else ''}, not {len(states)} tensors")
    only_tensors(kind.name, x, *states)
    directions = 1 + bool(bidirectional)
    projected = kind.cell and states[0].meta.shape[-1] != states[1].meta.shape[-1]
    grouped = _group_parameters(kind, list(params), bool(biases), projected, layers * directions)
    return _run_layers(kind, x, sizes, states, grouped, layers, dropout if train else 0.0, directions)


def _run_layers(
    kind: CellKind, x: Tensor, sizes: list[int], states: tuple[Tensor, ...], grouped: list[Weights], layers: int,
    dropout: float, directions: int,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Run all layers in order, with dropout between them. `grouped` has one `Weights` per layer and direction.

    Return the output and the final states: h_n, and c_n with a cell state.
    """
    x, states, grouped = _cast_for_autocast(x, states, grouped)
    geometry = Geometry(sizes)
    _check(kind, x, geometry, states, grouped, directions)
    layer_finals: list[list[Tensor]] = []
    for layer_index in range(layers):
        first = layer_index * directions  # index of the layer's first direction in states and weights
        initial = [s if layers == 1 else ops.narrow(s, 0, first, directions) for s in states]
        initial = [s if s.meta.contiguous else ops.contiguous_copy(s) for s in initial]
        x = x if x.meta.contiguous else ops.contiguous_copy(x)
        x, *final_states = layer(
            kind, geometry, x, initial[0], initial[1] if kind.cell else None, grouped[first : first + directions]
        )
        layer_finals.append(final_states)
        if dropout and layer_index < layers - 1:
            x = _apply_dropout(x, dropout)
    return x, layer_finals[0] if layers == 1 else [cat(states) for states in zip(*layer_finals, strict=True)]


def _apply_dropout(x: Tensor, p: float) -> Tensor:
    from ..nn.functional import dropout  # lazy: nn imports this package

    return dropout(x, p)


def _group_parameters(kind: CellKind, params: list[Tensor], biases: bool, projected: bool, count: int) -> list[Weights]:
    """Split the flat parameter list into one `Weights` for each layer and direction."""
    params_per_direction = 2 + 2 * biases + projected
    if len(params) != params_per_direction * count:
        total = params_per_direction * count
        expected = f"{params_per_direction} parameters for each layer and direction, {total} in all"
        raise ArgumentError(f"{kind.name}: takes {expected}, not {len(params)}")
    only_tensors(kind.name, *params)
    grouped = []
    for i in range(0, len(params), params_per_direction):
        chunk = params[i : i + params_per_direction]
        hr = chunk.pop() if projected else None
        grouped.append(Weights(chunk[0], chunk[1], chunk[2] if biases else None, chunk[3] if biases else None, hr))
    return grouped


def _cast_for_autocast(
    x: Tensor, states: tuple[Tensor, ...], grouped: list[Weights]
) -> tuple[Tensor, tuple[Tensor, ...], list[Weights]]:
    """Under autocast, cast all operands to the half dtype; gates are still computed in float32."""
    region = state().autocast
    half_dtype = None if region is None else region.enabled.get(x.meta.device.type)
    if half_dtype is None or x.meta.dtype is float64:
        return x, states, grouped
    if x.meta.dtype is not half_dtype:
        x = call(registry["copy"], (x,), (half_dtype,))
    cast_weights = [
        Weights._make(None if w is None else match_autocast_dtype(w, x) for w in direction_weights)
        for direction_weights in grouped
    ]
    return x, tuple(match_autocast_dtype(s, x) for s in states), cast_weights


def _check(
    kind: CellKind, x: Tensor, geometry: Geometry, states: tuple[Tensor, ...], grouped: list[Weights], directions: int
) -> None:
    """Raise `ShapeError`, `DTypeError` or `DeviceError` with the name of the first operand that does not fit."""
    name, layout = kind.name, x.meta
    if layout.dtype.kind != "f":
        raise DTypeError(f"{name}: takes floating dtypes, not {layout.dtype.name}; convert with .to()")
    if layout.ndim != 2 or layout.shape[0] != geometry.rows:
        raise ShapeError(f"{name}: batch sizes add up to {geometry.rows} rows, the data has shape {list(layout.shape)}")
    is_growing = any(later > earlier for earlier, later in pairwise(geometry.sizes))
    if is_growing or (geometry.batch and 0 in geometry.sizes):
        raise ShapeError(f"{name}: batch sizes must be positive and never grow, not {list(geometry.sizes)[:20]}")
    first = grouped[0]
    hidden_size = first.hh.meta.shape[0] // kind.gates
    state_size = hidden_size if first.hr is None else first.hr.meta.shape[0]
    for i, weights in enumerate(grouped):
        features = layout.shape[1] if i < directions else state_size * directions
        rows = kind.gates * hidden_size
        expected_shapes: list[tuple[int, ...]] = [
            (rows, features),
            (rows, state_size),
            (rows,),
            (rows,),
            (state_size, hidden_size),
        ]
        for field, tensor, shape in zip(_FIELDS, weights, expected_shapes, strict=True):
            if tensor is not None:
                _check_operand(name, f"{field}_l{i // directions}" + "_reverse" * (i % directions), tensor, shape, x)
    for operand, tensor, last_size in zip(("h_0", "c_0"), states, (state_size, hidden_size), strict=False):
        _check_operand(name, operand, tensor, (len(grouped), geometry.batch, last_size), x)


_FIELDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def _check_operand(name: str, operand: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor) -> None:
    layout, input_layout = tensor.meta, x.meta
    if layout.shape != shape:
        description = f"{operand} must have shape {list(shape)}, not {list(layout.shape)}"
        raise ShapeError(f"{name}: {description}, for an input of {input_layout.shape[1]} features")
    if layout.dtype is not input_layout.dtype:
        raise DTypeError(
            f"{name}: the input is {input_layout.dtype.name} and {operand} {layout.dtype.name}; convert one with .to()"
        )
    if layout.device is not input_layout.device:
        raise DeviceError(
            f"{name}: the input is on {input_layout.device} and {operand} on {layout.device}; move one with .to()"
        )


# Cells ----------------------------------------------------------------------------------------------------------------


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute one step of an LSTM; the equations are those of `lstm`.

    Args:
        input: `(N, input_size)` or `(input_size,)`.
        hx: Previous states `(h, c)`, each `(N, hidden)` or `(hidden,)`.
        w_ih: `(4 * hidden, input_size)`; the gates' rows in the order input, forget, cell, output.
        w_hh: `(4 * hidden, hidden)`.
        b_ih: `(4 * hidden,)` or None.
        b_hh: `(4 * hidden,)` or None.

    Returns:
        The new states `(h, c)`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> state = wg.zeros(2, 5)
        >>> h, c = wg.lstm_cell(wg.ones(2, 3), (state, state), wg.ones(20, 3), wg.ones(20, 5))
        >>> h.shape, c.shape
        (weftgrad.Size([2, 5]), weftgrad.Size([2, 5]))
    """
    h, c = _cell("lstm", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """Compute one step of a GRU (Cho et al. 2014).

    Args:
        input: `(N, input_size)` or `(input_size,)`.
        hx: Previous state, `(N, hidden)` or `(hidden,)`.
        w_ih: `(3 * hidden, input_size)`; the gates' rows in the order reset, update, new.
        w_hh: `(3 * hidden, hidden)`.
        b_ih: `(3 * hidden,)` or None.
        b_hh: `(3 * hidden,)` or None.

    Returns:
        The new state, of the shape of `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> wg.gru_cell(wg.ones(2, 3), wg.zeros(2, 5), wg.ones(15, 3), wg.ones(15, 5)).shape
        weftgrad.Size([2, 5])
    """
    return _cell("gru", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """Compute one step of an Elman network: tanh(w_ih input + b_ih + w_hh hx + b_hh).

    Args:
        input: `(N, input_size)` or `(input_size,)`.
        hx: Previous state, `(N, hidden)` or `(hidden,)`.
        w_ih: `(hidden, input_size)`.
        w_hh: `(hidden, hidden)`.
        b_ih: `(hidden,)` or None.
        b_hh: `(hidden,)` or None.

    Returns:
        The new state, of the shape of `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> wg.rnn_tanh_cell(wg.zeros(2, 3), wg.zeros(2, 1), wg.ones(1, 3), wg.ones(1, 1))
        tensor([[0.],
                [0.]])
    """
    return _cell("rnn_tanh", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """Compute one step of an Elman network with ReLU: relu(w_ih input + b_ih + w_hh hx + b_hh).

    Args:
        input: `(N, input_size)` or `(input_size,)`.
        hx: Previous state, `(N, hidden)` or `(hidden,)`.
        w_ih: `(hidden, input_size)`.
        w_hh: `(hidden, hidden)`.
        b_ih: `(hidden,)` or None.
        b_hh: `(hidden,)` or None.

    Returns:
        The new state, of the shape of `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> wg.rnn_relu_cell(wg.ones(2, 3), wg.zeros(2, 1), wg.ones(1, 3), wg.ones(1, 1))
        tensor([[3.],
                [3.]])
    """
    return _cell("rnn_relu", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def _cell(
    name: str, input: Tensor, states: tuple[Tensor, ...], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Run a one-layer network over one step."""
    only_tensors(f"{name}_cell", input, *states, w_ih, w_hh)
    if input.meta.ndim not in (1, 2):
        raise ShapeError(f"{name}_cell: the input must have 1 or 2 dimensions, not shape {list(input.meta.shape)}")
    is_unbatched = input.meta.ndim == 1
    for hidden_state in states:
        if hidden_state.meta.ndim != input.meta.ndim:
            raise ShapeError(
                f"{name}_cell: hx has {hidden_state.meta.ndim} dimensions and the input {input.meta.ndim}; both must "
                "have the same number"
            )
    rows = ops.unsqueeze(input, 0) if is_unbatched else input
    hx = [views.reshape(s, (1, 1, *s.meta.shape) if is_unbatched else (1, *s.meta.shape)) for s in states]
    kind, weights = CELL_KINDS[name], [Weights(w_ih, w_hh, b_ih, b_hh)]
    _, finals = _run_layers(kind, rows, [rows.meta.shape[0]], tuple(hx), weights, 1, 0.0, 1)
    return [views.reshape(f, s.meta.shape) for f, s in zip(finals, states, strict=True)]
