"""Recurrent networks as functions. Names and arguments are PyTorch's; `recurrent_cells` has single steps.

The parameters of a network are one flat list, ordered by layer and then by direction. Each direction contributes
weight_ih, weight_hh; with biases also bias_ih, bias_hh; with a projection also weight_hr. `nn.RNN`, `nn.LSTM` and
`nn.GRU` own such lists. `recurrent_layers` runs the layers, `recurrent_graph` records one for autograd, and
`runtime.recurrent` runs one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, overload

from .._generated import ops
from ..runtime import views
from ..runtime.errors import ShapeError
from ..runtime.recurrent.directions import CELL_KINDS
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .recurrent_layers import run_network

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]


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

    rows = 5 * CELL_KINDS[name].gates  # of the example's weights
    network.__name__ = network.__qualname__ = name
    network.__doc__ = f"""Run {kind} over a batch of sequences.

    For a `PackedSequence` call `{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
    bidirectional)`. The arguments are those of `lstm`, except that `hx` is one tensor.

    Args:
        input: `(T, N, input_size)`, or `(N, T, input_size)` with `batch_first`.
        hx: Initial states, `(layers * directions, N, hidden)`.
        params: Flat list of parameters, by layer and then direction: weight_ih, weight_hh, with biases also bias_ih,
            bias_hh.
        has_biases: Whether `params` has biases.
        num_layers: Number of layers.
        dropout: Probability of dropout between layers, used if `train` is true.
        train: Whether the network is being trained.
        bidirectional: Whether each layer also runs backwards in time.
        batch_first: Whether the batch is the first dimension of input and output.

    Returns:
        `(output, h_n)`: output `(T, N, directions * hidden)`, states shaped like `hx`.

    Raises:
        ShapeError: Shapes do not fit together.
        DTypeError: Dtypes differ or are not floating.
        DeviceError: Operands are on different devices.

    Example:
        >>> weights = [wg.ones({rows}, 3), wg.ones({rows}, 5)]
        >>> output, h = wg.{name}(wg.ones(7, 2, 3), wg.zeros(1, 2, 5), weights, False, 1, 0.0, False, False)
        >>> output.shape, h.shape
        (weftgrad.Size([7, 2, 5]), weftgrad.Size([1, 2, 5]))
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
        return run_network(kind, data, sizes, hx, params, biases, layers, dropout, train, bidirectional)
    input, hx, params, biases, layers, dropout, train, bidirectional, batch_first = arguments
    only_tensors(name, input)
    if input.meta.ndim != 3:
        raise ShapeError(f"{name}: the input must have 3 dimensions, not shape {list(input.meta.shape)}")
    time_first = ops.transpose(input, 0, 1) if batch_first else input
    length, batch, features = time_first.meta.shape
    if not length:
        raise ShapeError(f"{name}: the sequence has no steps: the input has shape {list(input.meta.shape)}")
    rows = views.reshape(time_first, (length * batch, features))
    out, final_states = run_network(
        kind, rows, [batch] * length, hx, params, biases, layers, dropout, train, bidirectional
    )
    out = views.reshape(out, (length, batch, out.meta.shape[1]))
    return ops.transpose(out, 0, 1) if batch_first else out, final_states
