"""Single steps of recurrent networks as functions. Names and arguments are PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence

from .._generated import ops
from ..runtime import views
from ..runtime.errors import ShapeError
from ..runtime.recurrent.directions import CELL_KINDS, Weights
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .recurrent_layers import run_layers

__all__ = ["gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"]


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
    _, finals = run_layers(kind, rows, [rows.meta.shape[0]], tuple(hx), weights, 1, 0.0, 1)
    return [views.reshape(f, s.meta.shape) for f, s in zip(finals, states, strict=True)]
