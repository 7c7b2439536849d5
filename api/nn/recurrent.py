"""Recurrent networks under PyTorch's names: `RNN`, `GRU` and `LSTM`.

`recurrent_base` has what they share, `recurrent_cells` has single steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from .recurrent_base import RNNBase
from .utils.rnn import PackedSequence

if TYPE_CHECKING:
    Input: TypeAlias = Tensor | PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

LSTMState: TypeAlias = tuple[Tensor, Tensor]
"""(h, c)."""


class RNN(RNNBase):
    """An Elman network (Elman 1990): h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh).

    `forward` returns (output, h_n); see `RNNBase.forward`.

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        num_layers: Number of stacked layers.
        nonlinearity: `"tanh"` or `"relu"`.
        bias: Add biases.
        batch_first: Input and output are `(batch, length, features)` instead of `(length, batch, features)`.
        dropout: Dropout probability between layers.
        bidirectional: Add a layer that runs backwards, and concatenate the outputs.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.
        **extra_options: No further argument is accepted.

    Raises:
        ArgumentError: If an argument is out of its range or unknown.

    Example:
        >>> output, state = wg.nn.RNN(3, 5, batch_first=True)(wg.ones(2, 7, 3))
        >>> output.shape, state.shape
        (weftgrad.Size([2, 7, 5]), weftgrad.Size([1, 2, 5]))
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
        @overload
        def __call__(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]: ...
        def __call__(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]: ...

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        **extra_options: object,
    ):
        _reject_extra_options("RNN", extra_options)
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


def _reject_extra_options(name: str, extra_options: dict[str, object]) -> None:
    if "proj_size" in extra_options:
        raise ArgumentError(f"{name}: takes no proj_size; only LSTM has projections")
    if extra_options:
        raise ArgumentError(f"{name}: unexpected argument {next(iter(extra_options))!r}")


class GRU(RNNBase):
    """Gated recurrent units, with the reset gate after the matrix product, as in cuDNN.

    Source: Cho et al. 2014, arXiv 1406.1078.

        r  = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
        z  = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
        n  = tanh(W_in x + b_in + r * (W_hn h + b_hn))
        h' = (1 - z) * n + z * h

    The rows of the weights are in the order r, z, n. `forward` returns (output, h_n); see `RNNBase.forward`. The
    arguments are `RNN`'s without `nonlinearity`.

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        num_layers: Number of stacked layers.
        bias: Add biases.
        batch_first: Input and output are `(batch, length, features)` instead of `(length, batch, features)`.
        dropout: Dropout probability between layers.
        bidirectional: Add a layer that runs backwards, and concatenate the outputs.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.
        **extra_options: No further argument is accepted.

    Raises:
        ArgumentError: If an argument is out of its range or unknown.

    Example:
        >>> output, state = wg.nn.GRU(3, 5, batch_first=True)(wg.ones(2, 7, 3))
        >>> output.shape, state.shape
        (weftgrad.Size([2, 7, 5]), weftgrad.Size([1, 2, 5]))
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...
        @overload
        def __call__(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...
        @overload
        def __call__(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]: ...
        def __call__(self, input: Input, hx: Tensor | None = None) -> tuple[Input, Tensor]: ...

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        **extra_options: object,
    ):
        _reject_extra_options("GRU", extra_options)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) with forget gates (Gers et al. 2000).

        i  = sigmoid(W_ii x + b_ii + W_hi h + b_hi)      # f and o likewise
        g  = tanh(W_ig x + b_ig + W_hg h + b_hg)
        c' = f * c + i * g
        h' = o * tanh(c')                                # with proj_size: W_hr (o * tanh(c'))

    The rows of the weights are in the order i, f, g, o. `forward` takes hx = (h_0, c_0) and returns (output, (h_n,
    c_n)); see `RNNBase.forward`. The arguments are `RNN`'s without `nonlinearity`, and `proj_size`, the features of the
    projected hidden state (Sak et al. 2014, arXiv 1402.1128).

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        num_layers: Number of stacked layers.
        bias: Add biases.
        batch_first: Input and output are `(batch, length, features)` instead of `(length, batch, features)`.
        dropout: Dropout probability between layers.
        bidirectional: Add a layer that runs backwards, and concatenate the outputs.
        proj_size: Features of the projected hidden state (Sak et al. 2014, arXiv 1402.1128); 0 for no projection.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        ArgumentError: If an argument is out of its range.

    Example:
        >>> output, (state, cell) = wg.nn.LSTM(3, 5, batch_first=True)(wg.ones(2, 7, 3))
        >>> output.shape, cell.shape
        (weftgrad.Size([2, 7, 5]), weftgrad.Size([1, 2, 5]))
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, input: Tensor, hx: LSTMState | None = None) -> tuple[Tensor, LSTMState]: ...
        @overload
        def __call__(self, input: PackedSequence, hx: LSTMState | None = None) -> tuple[PackedSequence, LSTMState]: ...
        @overload
        def __call__(self, input: Input, hx: LSTMState | None = None) -> tuple[Input, LSTMState]: ...
        def __call__(self, input: Input, hx: LSTMState | None = None) -> tuple[Input, LSTMState]: ...

    def __init__(
        self,
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
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of c_0: (num_layers * directions, batch, hidden_size).

        Args:
            input: Input of `forward`, with a batch dimension.
            batch_sizes: Batch sizes of a packed input; None for a padded one.

        Returns:
            Three ints.

        Example:
            >>> wg.nn.LSTM(3, 5, proj_size=2).get_expected_cell_size(wg.ones(7, 2, 3), None)
            (1, 2, 5)
        """
        return self._states_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: LSTMState, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        expected = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], expected, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: LSTMState, permutation: Tensor | None) -> LSTMState:
        return hx if permutation is None else (hx[0].index_select(1, permutation), hx[1].index_select(1, permutation))

    def _initial_states(self, hx: LSTMState, is_single: bool) -> list[Tensor]:
        state_pair = hx if isinstance(hx, (tuple, list)) else (hx,)
        only_tensors("LSTM", *state_pair)
        if len(state_pair) != 2 or isinstance(hx, Tensor):
            raise ShapeError("LSTM: hx must be (h_0, c_0), two tensors")
        return [self._add_batch_dim(s, is_single, name) for s, name in zip(state_pair, ("hx[0]", "hx[1]"), strict=True)]

    def _state_sizes(self) -> list[int]:
        return [self.proj_size or self.hidden_size, self.hidden_size]

    def _as_hidden(self, states: list[Tensor]) -> LSTMState:
        h, c = states
        return h, c
