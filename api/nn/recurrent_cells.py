"""Cells of recurrent networks: a step at a time. Names, arguments, parameters and initial values are PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from .. import recurrent
from .._checks import only_tensors
from ..factories import empty, zeros
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


def draw(module: Module, size: int) -> None:
    """All parameters from U(-1/sqrt(size), 1/sqrt(size))."""
    bound = 1.0 / math.sqrt(size) if size > 0 else 0.0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNCellBase(Module):
    """What cells have in common: weight_ih (gates x hidden_size, input_size), weight_hh (gates x hidden_size,
    hidden_size), and with `bias` bias_ih and bias_hh (gates x hidden_size), None without."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ):
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
        """Draw all parameters anew from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        draw(self, self.hidden_size)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            shown += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return shown if nonlinearity == "tanh" else f"{shown}, nonlinearity={nonlinearity}"

    def _step(self, function: Any, input: Tensor, hx: Any, states: int) -> Any:
        """`function` of the input, the states (zeros for None) and the parameters."""
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
            found = [zeros(*shape, dtype=input.meta.dtype, device=input.meta.device) for _ in range(states)]
        else:
            found = [hx] if states == 1 else list(hx) if isinstance(hx, (tuple, list)) else []
            if len(found) != states:
                raise ArgumentError(f"{name}: hx must be (h, c), two tensors, not {type(hx).__name__}")
            only_tensors(name, *found)
        for each in found:
            if each.meta.shape != shape:
                raise ShapeError(f"{name}: to this input hx must have shape {list(shape)}, got {list(each.meta.shape)}")
        given = found if states > 1 else found[0]
        return function(input, given, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class RNNCell(RNNCellBase):
    """A step of an Elman network: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or with relu."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h from input (batch, input_size), or (input_size,), and hx (batch, hidden_size), or (hidden_size,)."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"RNNCell: nonlinearity is 'tanh' or 'relu', not {self.nonlinearity!r}")
        function = recurrent.rnn_tanh_cell if self.nonlinearity == "tanh" else recurrent.rnn_relu_cell
        return self._step(function, input, hx, 1)  # type: ignore[no-any-return]


class LSTMCell(RNNCellBase):
    """A step of long short-term memory; see `LSTM`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """(h, c) from input (batch, input_size), or (input_size,), and hx = (h, c)."""
        return self._step(recurrent.lstm_cell, input, hx, 2)  # type: ignore[no-any-return]


class GRUCell(RNNCellBase):
    """A step of a gated recurrent unit; see `GRU`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """h from input (batch, input_size), or (input_size,), and hx (batch, hidden_size), or (hidden_size,)."""
        return self._step(recurrent.gru_cell, input, hx, 1)  # type: ignore[no-any-return]
