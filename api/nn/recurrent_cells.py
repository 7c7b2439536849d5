"""Cells of recurrent networks, which compute one step, under PyTorch's names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..creation.factories import empty, zeros
from ..layer_functions import recurrent_cells as cells
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


def init_uniform_by_size(module: Module, size: int) -> None:
    """Draw all parameters from U(-1/sqrt(size), 1/sqrt(size))."""
    bound = 1.0 / math.sqrt(size) if size > 0 else 0.0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNCellBase(Module):
    """Base class of cells.

    The parameters are `weight_ih` (gates * hidden_size, input_size), `weight_hh` (gates * hidden_size, hidden_size),
    and `bias_ih` and `bias_hh` (gates * hidden_size), which are None without `bias`.

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        bias: Add biases.
        num_chunks: Number of gates.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.modules.rnn.RNNCellBase(3, 5, True, 4).weight_ih.shape
        weftgrad.Size([20, 3])
    """

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        init_uniform_by_size(self, self.hidden_size)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _initial_states(self, input: Tensor, hx: Tensor | Sequence[Tensor] | None, num_states: int) -> list[Tensor]:
        """Check the input and the states. Return the states as a list, zeros if `hx` is None."""
        name = self._get_name()
        only_tensors(name, input)
        if input.meta.ndim not in (1, 2):
            raise ShapeError(
                f"{name}: input must have 1 dimension, for one example, or 2, got shape {list(input.meta.shape)}"
            )
        if input.meta.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: the input's last dimension must be input_size, {self.input_size}, got shape "
                f"{list(input.meta.shape)}"
            )
        shape = (*input.meta.shape[:-1], self.hidden_size)
        if hx is None:
            return [zeros(*shape, dtype=input.meta.dtype, device=input.meta.device) for _ in range(num_states)]
        if num_states == 1:
            only_tensors(name, hx)
        states = [hx] if isinstance(hx, Tensor) else list(hx) if isinstance(hx, (tuple, list)) else []
        if len(states) != num_states:
            raise ArgumentError(f"{name}: hx must be (h, c), two tensors, not {type(hx).__name__}")
        only_tensors(name, *states)
        for state in states:
            if state.meta.shape != shape:
                raise ShapeError(
                    f"{name}: for this input hx must have shape {list(shape)}, got {list(state.meta.shape)}"
                )
        return states


class RNNCell(RNNCellBase):
    """One step of an Elman network: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu.

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        bias: Add biases.
        nonlinearity: `"tanh"` or `"relu"`.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.RNNCell(3, 5)(wg.ones(2, 3)).shape
        weftgrad.Size([2, 5])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: DeviceLike | None = None, dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return h' of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Args:
            input: `(batch, input_size)` or `(input_size,)`.
            hx: Hidden state of the result's shape; None means zeros.

        Returns:
            Tensor of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Raises:
            ShapeError: If a shape does not fit, or `nonlinearity` is unknown.

        Example:
            >>> wg.nn.RNNCell(3, 5)(wg.ones(3)).shape
            weftgrad.Size([5])
        """
        if self.nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"RNNCell: nonlinearity is 'tanh' or 'relu', not {self.nonlinearity!r}")
        function = cells.rnn_tanh_cell if self.nonlinearity == "tanh" else cells.rnn_relu_cell
        (state,) = self._initial_states(input, hx, 1)
        return function(input, state, *self._weights())


class LSTMCell(RNNCellBase):
    """One step of long short-term memory; `LSTM` has the formulas.

    Args:
        input_size: Number of features of the input.
        hidden_size: Number of features of the state.
        bias: Whether to add both biases.
        device: Device of the parameters.
        dtype: Dtype of the parameters.

    Example:
        >>> state, cell = wg.nn.LSTMCell(3, 5)(wg.ones(2, 3))
        >>> state.shape, cell.shape
        (weftgrad.Size([2, 5]), weftgrad.Size([2, 5]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return (h', c'), each of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Args:
            input: `(batch, input_size)` or `(input_size,)`.
            hx: (h, c); None means zeros.

        Returns:
            Two tensors of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Raises:
            ShapeError: If a shape does not fit.
            ArgumentError: If `hx` is not two tensors.

        Example:
            >>> state, cell = wg.nn.LSTMCell(3, 5)(wg.ones(3))
            >>> state.shape, cell.shape
            (weftgrad.Size([5]), weftgrad.Size([5]))
        """
        return cells.lstm_cell(input, self._initial_states(input, hx, 2), *self._weights())


class GRUCell(RNNCellBase):
    """One step of a gated recurrent unit; `GRU` has the formulas.

    Args:
        input_size: Number of features of the input.
        hidden_size: Number of features of the state.
        bias: Whether to add both biases.
        device: Device of the parameters.
        dtype: Dtype of the parameters.

    Example:
        >>> wg.nn.GRUCell(3, 5)(wg.ones(2, 3)).shape
        weftgrad.Size([2, 5])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return h' of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Args:
            input: `(batch, input_size)` or `(input_size,)`.
            hx: Hidden state of the result's shape; None means zeros.

        Returns:
            Tensor of shape `(batch, hidden_size)` or `(hidden_size,)`.

        Raises:
            ShapeError: If a shape does not fit.

        Example:
            >>> wg.nn.GRUCell(3, 5)(wg.ones(3)).shape
            weftgrad.Size([5])
        """
        (state,) = self._initial_states(input, hx, 1)
        return cells.gru_cell(input, state, *self._weights())
