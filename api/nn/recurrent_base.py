"""The base class of recurrent networks: parameters, checks and `forward`. `layer_functions.recurrent` computes."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..creation.factories import empty, zeros
from ..layer_functions import recurrent
from ..runtime.context import state
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .module import Module
from .parameter import Parameter
from .recurrent_cells import init_uniform_by_size
from .utils.rnn import PackedSequence

if TYPE_CHECKING:
    from ._types import Argument

    Hidden: TypeAlias = Argument  # a tensor, or the pair (h, c) of an LSTM

__all__ = ["RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "LSTM": recurrent.lstm, "GRU": recurrent.gru, "RNN_TANH": recurrent.rnn_tanh, "RNN_RELU": recurrent.rnn_relu,
}  # fmt: skip


class RNNBase(Module):
    """Base class of recurrent networks: parameters, checks and `forward`.

    Layer k has `weight_ih_lk` (gates * hidden_size, input features), `weight_hh_lk` (gates * hidden_size, hidden_size
    or proj_size), with `bias` also `bias_ih_lk` and `bias_hh_lk` (gates * hidden_size), and with `proj_size`
    `weight_hr_lk` (proj_size, hidden_size). The names of the backward direction end in `_reverse`.

    Args:
        mode: `"RNN_TANH"`, `"RNN_RELU"`, `"LSTM"` or `"GRU"`.
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        num_layers: Number of stacked layers.
        bias: Add biases.
        batch_first: Input and output are `(batch, length, features)` instead of `(length, batch, features)`.
        dropout: Dropout probability between layers.
        bidirectional: Add a layer that runs backwards, and concatenate the outputs.
        proj_size: Features of the projected hidden state (LSTM only); 0 for no projection.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        ArgumentError: If an argument is out of its range.

    Example:
        >>> [name for name, _ in wg.nn.modules.rnn.RNNBase('GRU', 3, 5).named_parameters()]
        ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        if mode not in _GATES:
            raise ArgumentError(f"RNNBase: mode is one of {', '.join(_GATES)}, not {mode!r}")
        _check_positive_int("input_size", input_size)
        _check_positive_int("hidden_size", hidden_size)
        _check_positive_int("num_layers", num_layers)
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ArgumentError(f"{mode}: dropout is a probability, a number between 0 and 1, not {dropout!r}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"{mode}: dropout={dropout} acts between layers, and there is only one: give num_layers=2 or more",
                stacklevel=3,
            )
        if not 0 <= proj_size < hidden_size:
            raise ArgumentError(
                f"{mode}: proj_size is less than hidden_size, {hidden_size}, or 0 for no projection; not {proj_size}"
            )
        if proj_size and mode != "LSTM":
            raise ArgumentError(f"{mode}: proj_size={proj_size}, but only LSTM has projections")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._all_weights: list[list[str]] = []
        output_size, gate_rows = proj_size or hidden_size, _GATES[mode] * hidden_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 1 + bool(bidirectional)]:
                features = output_size * (1 + bool(bidirectional)) if layer else input_size
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gate_rows, features),
                    "weight_hh": (gate_rows, output_size),
                }
                shapes |= {"bias_ih": (gate_rows,), "bias_hh": (gate_rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                shape_by_name = {f"{name}_l{layer}{suffix}": shape for name, shape in shapes.items()}
                for name, shape in shape_by_name.items():
                    setattr(self, name, Parameter(empty(*shape, device=device, dtype=dtype)))
                self._all_weights.append(list(shape_by_name))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        init_uniform_by_size(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Do nothing. PyTorch's cuDNN kernels need parameters in one block of memory; weftgrad's kernels do not."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
            ("bidirectional", False),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    # checks of forward's arguments

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Check the input.

        Args:
            input: Input of `forward`, with a batch dimension.
            batch_sizes: Batch sizes of a packed input; None for a padded one.

        Raises:
            ArgumentError: If its dtype differs from the weights'. It is also a `ValueError`.
            ShapeError: If its shape does not fit.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> layer.check_input(wg.ones(2, 7, 3), None)
        """
        layout = input.meta
        weight_dtype = self._flat_weights[0].meta.dtype
        if layout.dtype is not weight_dtype and _requires_equal_dtypes():
            raise ArgumentError(
                f"{self._get_name()}: the input is {layout.dtype.name} and the weights are {weight_dtype.name}; "
                f"convert one of them: input.to({weight_dtype.name}), or module.to({layout.dtype.name})"
            )
        expected_ndim = 3 if batch_sizes is None else 2
        if layout.ndim != expected_ndim:
            raise ShapeError(
                f"{self._get_name()}: input must have {expected_ndim} dimensions, got shape {list(layout.shape)}"
            )
        if layout.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._get_name()}: the input's last dimension must be input_size, {self.input_size}, "
                f"got shape {list(layout.shape)}"
            )

    def _states_size(self, input: Tensor, batch_sizes: Tensor | None, width: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.meta.shape[0 if self.batch_first else 1]
        return self.num_layers * (1 + bool(self.bidirectional)), batch, width

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of h_0: (num_layers * directions, batch, proj_size or hidden_size).

        Args:
            input: Input of `forward`, with a batch dimension.
            batch_sizes: Batch sizes of a packed input; None for a padded one.

        Returns:
            Three ints.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> layer.get_expected_hidden_size(wg.ones(2, 7, 3), None)
            (1, 2, 5)
        """
        return self._states_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Check the shape of a state.

        Args:
            hx: The state.
            expected_hidden_size: Its expected shape.
            msg: Message with two `{}`, for the expected and the actual shape.

        Raises:
            ShapeError: If the shapes differ. It is also a `RuntimeError`.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> layer.check_hidden_size(wg.zeros(1, 2, 5), (1, 2, 5))
        """
        if hx.meta.shape != tuple(expected_hidden_size):
            raise ShapeError(f"{self._get_name()}: " + msg.format(tuple(expected_hidden_size), list(hx.meta.shape)))

    def check_forward_args(self, input: Tensor, hidden: Hidden, batch_sizes: Tensor | None) -> None:
        """Check the input and the initial states.

        Args:
            input: Input of `forward`, with a batch dimension.
            hidden: Initial states with a batch dimension.
            batch_sizes: Batch sizes of a packed input; None for a padded one.

        Raises:
            ShapeError: If a shape does not fit.
            ArgumentError: If the input's dtype differs from the weights'.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> layer.check_forward_args(wg.ones(2, 7, 3), wg.zeros(1, 2, 5), None)
        """
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Hidden, permutation: Tensor | None) -> Hidden:
        """Return the states with their batch permuted; unchanged for None.

        Args:
            hx: States of shape `(num_layers * directions, batch, size)`.
            permutation: int64 vector of positions in the batch, or None.

        Returns:
            States of the same shape.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> layer.permute_hidden(wg.tensor([[[1.0], [2.0]]]), wg.tensor([1, 0])).tolist()
            [[[2.0], [1.0]]]
        """
        return hx if permutation is None else hx.index_select(1, permutation)

    # forward

    def _initial_states(self, hx: Hidden, is_single: bool) -> list[Tensor]:
        """Return the passed initial states as a list, with a batch dimension."""
        only_tensors(self._get_name(), hx)
        return [self._add_batch_dim(hx, is_single, "hx")]

    def _add_batch_dim(self, state: Tensor, is_single: bool, name: str) -> Tensor:
        expected_ndim = 2 if is_single else 3
        if state.meta.ndim != expected_ndim:
            raise ShapeError(
                f"{self._get_name()}: {name} must have {expected_ndim} dimensions as the input is "
                f"{'one sequence' if is_single else 'a batch'}, got shape {list(state.meta.shape)}"
            )
        return state.unsqueeze(1) if is_single else state

    def _state_sizes(self) -> list[int]:
        """Return the number of features of each state."""
        return [self.hidden_size]

    def _as_hidden(self, states: list[Tensor]) -> Hidden:
        """Return the states as `forward` takes and returns them: one tensor, or a tuple for an LSTM."""
        return states[0]

    def forward(
        self, input: Tensor | PackedSequence, hx: Hidden | None = None
    ) -> tuple[Tensor | PackedSequence, Hidden]:
        """Run the network.

        Args:
            input: `(length, batch, input_size)`, with `batch_first` `(batch, length, input_size)`, one sequence
                `(length, input_size)`, or a `PackedSequence`.
            hx: Initial states of shape `(num_layers * directions, batch, size)`, without the batch for one sequence;
                None means zeros. An LSTM takes a tuple (h_0, c_0).

        Returns:
            (output of the last layer at every step, final states of all layers). The output has directions * size
            features; it is a `PackedSequence` if the input is.

        Raises:
            ShapeError: If a shape does not fit.
            ArgumentError: If a dtype does not fit.

        Example:
            >>> layer = wg.nn.GRU(3, 5, batch_first=True)
            >>> output, state = layer(wg.ones(2, 7, 3))
            >>> output.shape, state.shape
            (weftgrad.Size([2, 7, 5]), weftgrad.Size([1, 2, 5]))
        """
        is_packed = isinstance(input, PackedSequence)
        sort_order = inverse_order = batch_sizes = None
        is_single = False
        if isinstance(input, PackedSequence):
            x, batch_sizes, sort_order, inverse_order = input
        else:
            only_tensors(self._get_name(), input)
            if input.meta.ndim not in (2, 3):
                raise ShapeError(
                    f"{self._get_name()}: input must have 2 dimensions, for one sequence, or 3, got shape "
                    f"{list(input.meta.shape)}"
                )
            is_single = input.meta.ndim == 2
            x = input.unsqueeze(0 if self.batch_first else 1) if is_single else input
        if hx is None:
            self.check_input(x, batch_sizes)
            shapes = [self._states_size(x, batch_sizes, width) for width in self._state_sizes()]
            states = [zeros(*shape, dtype=x.meta.dtype, device=x.meta.device) for shape in shapes]
        else:
            initial_states = self._as_hidden(self._initial_states(hx, is_single))
            initial_states = self.permute_hidden(initial_states, sort_order)
            self.check_forward_args(x, initial_states, batch_sizes)
            states = list(initial_states) if isinstance(initial_states, tuple) else [initial_states]
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        network_states, weights, function = self._as_hidden(states), self._flat_weights, _FUNCTIONS[self.mode]
        if is_packed:
            output, *final_states = function(x, batch_sizes, network_states, weights, *options)
            return PackedSequence(output, batch_sizes, sort_order, inverse_order), self.permute_hidden(
                self._as_hidden(final_states), inverse_order
            )
        output, *final_states = function(x, network_states, weights, *options, self.batch_first)
        if is_single:
            output, final_states = output.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in final_states]
        return output, self._as_hidden(final_states)


def _check_positive_int(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{name} must be an int, not {type(value).__name__}")
    if value <= 0:
        raise ArgumentError(f"{name} must be positive, not {value}")


def _requires_equal_dtypes() -> bool:
    """Return whether input and weights must have one dtype. Under autocast they are cast."""
    region = state().autocast
    return region is None or not region.enabled
