"""Recurrent networks (cells are in `recurrent_cells`). Names, arguments, parameters, initial values are PyTorch's."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

from .. import recurrent
from .._checks import only_tensors
from ..factories import empty, zeros
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from .module import Module
from .parameter import Parameter
from .recurrent_cells import draw
from .utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS = {
    "LSTM": recurrent.lstm, "GRU": recurrent.gru, "RNN_TANH": recurrent.rnn_tanh, "RNN_RELU": recurrent.rnn_relu,
}  # fmt: skip


class RNNBase(Module):
    """What recurrent networks have in common: their parameters, and how they take sequences and states.

    For layer k, and its backward direction with `_reverse` behind the name: weight_ih_lk (gates x hidden_size, what the
    layer below gives), weight_hh_lk (gates x hidden_size, hidden_size or proj_size), with `bias` bias_ih_lk and
    bias_hh_lk (gates x hidden_size), with `proj_size` weight_hr_lk (proj_size, hidden_size).
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
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if mode not in _GATES:
            raise ArgumentError(f"RNNBase: mode is one of {', '.join(_GATES)}, not {mode!r}")
        _sized("input_size", input_size)
        _sized("hidden_size", hidden_size)
        _sized("num_layers", num_layers)
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # type: ignore[operator]
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
        width, rows = proj_size or hidden_size, _GATES[mode] * hidden_size
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 1 + bool(bidirectional)]:
                features = width * (1 + bool(bidirectional)) if layer else input_size
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, features), "weight_hh": (rows, width)}
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                named = {f"{name}_l{layer}{suffix}": shape for name, shape in shapes.items()}
                for name, shape in named.items():
                    setattr(self, name, Parameter(empty(*shape, device=device, dtype=dtype)))
                self._all_weights.append(list(named))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        draw(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Nothing: kernels take parameters as they lie. For PyTorch's sake, whose cuDNN wants them in one piece."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
            ("bidirectional", False),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != usual:
                shown += f", {name}={value}"
        return shown

    # what forward is given

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise `ArgumentError`, a `ValueError`, for a dtype other than the weights', `ShapeError` for a shape."""
        own = input.meta
        have = self._flat_weights[0].meta.dtype
        if own.dtype is not have and _plain_dtypes():
            raise ArgumentError(
                f"{self._get_name()}: the input is {own.dtype.name} and the weights are {have.name}; convert one of "
                f"them: input.to({have.name}), or module.to({own.dtype.name})"
            )
        wanted = 3 if batch_sizes is None else 2
        if own.ndim != wanted:
            raise ShapeError(f"{self._get_name()}: input must have {wanted} dimensions, got shape {list(own.shape)}")
        if own.shape[-1] != self.input_size:
            raise ShapeError(
                f"{self._get_name()}: the input's last dimension must be input_size, {self.input_size}, "
                f"got shape {list(own.shape)}"
            )

    def _states_size(self, input: Tensor, batch_sizes: Tensor | None, width: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.meta.shape[0 if self.batch_first else 1]
        return self.num_layers * (1 + bool(self.bidirectional)), batch, width

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of h_0: (layers x directions, batch, proj_size or hidden_size)."""
        return self._states_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raise `ShapeError`, a `RuntimeError`, unless `hx` has the shape expected."""
        if hx.meta.shape != tuple(expected_hidden_size):
            raise ShapeError(f"{self._get_name()}: " + msg.format(tuple(expected_hidden_size), list(hx.meta.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise `ShapeError` or `ArgumentError` for an input or states that do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States with their batch in another order; as they are for None."""
        return hx if permutation is None else hx.index_select(1, permutation)

    # forward

    def _states(self, input: Tensor, hx: Any, single: bool) -> list[Tensor]:
        """The initial states that were given, as a list, with a batch dimension."""
        only_tensors(self._get_name(), hx)
        return [self._batched(hx, single, "hx")]

    def _batched(self, state: Tensor, single: bool, name: str) -> Tensor:
        wanted = 2 if single else 3
        if state.meta.ndim != wanted:
            raise ShapeError(
                f"{self._get_name()}: {name} must have {wanted} dimensions as the input is "
                f"{'one sequence' if single else 'a batch'}, got shape {list(state.meta.shape)}"
            )
        return state.unsqueeze(1) if single else state  # type: ignore[no-any-return]

    def _widths(self) -> list[int]:
        """The sizes of the states."""
        return [self.hidden_size]

    def _packed_states(self, states: list[Tensor]) -> Any:
        return states[0]

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """The output of the last layer at every step, and the last states of all layers.

        input: (length, batch, input_size), with `batch_first` (batch, length, input_size), or one sequence (length,
        input_size), or a `PackedSequence`, which gives one. hx: the initial states, (layers x directions, batch, size),
        without the batch for one sequence; zeros if None. The output has directions x size features.

        Raises `ShapeError`, `ArgumentError`, `DTypeError` or `DeviceError` for what does not fit.
        """
        packed = isinstance(input, PackedSequence)
        order = back = sizes = None
        single = False
        if packed:
            x, sizes, order, back = input
        else:
            only_tensors(self._get_name(), input)
            if input.meta.ndim not in (2, 3):
                raise ShapeError(
                    f"{self._get_name()}: input must have 2 dimensions, for one sequence, or 3, got shape "
                    f"{list(input.meta.shape)}"
                )
            single = input.meta.ndim == 2
            x = input.unsqueeze(0 if self.batch_first else 1) if single else input
        if hx is None:
            self.check_input(x, sizes)
            shapes = [self._states_size(x, sizes, width) for width in self._widths()]
            states = [zeros(*shape, dtype=x.meta.dtype, device=x.meta.device) for shape in shapes]
        else:
            given = self._packed_states(self._states(x, hx, single))
            given = self.permute_hidden(given, order)
            self.check_forward_args(x, given, sizes)
            states = list(given) if isinstance(given, tuple) else [given]
        common = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        ready, weights, run = self._packed_states(states), self._flat_weights, _FUNCTIONS[self.mode]
        if packed:
            out, *ended = run(x, sizes, ready, weights, *common)
            return PackedSequence(out, sizes, order, back), self.permute_hidden(self._packed_states(ended), back)
        out, *ended = run(x, ready, weights, *common, self.batch_first)
        if single:
            out, ended = out.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in ended]
        return out, self._packed_states(ended)


def _sized(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentError(f"{name} must be an int, not {type(value).__name__}")
    if value <= 0:
        raise ArgumentError(f"{name} must be positive, not {value}")


def _plain_dtypes() -> bool:
    """Whether operands keep the dtypes they have: autocast brings an input and weights together."""
    from ..runtime.context import state

    return state().autocast is None or not state().autocast.enabled  # type: ignore[union-attr]


class RNN(RNNBase):
    """An Elman network (Elman 1990): h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh).

    With `nonlinearity="relu"` the positive part in place of tanh. `forward` gives the output and h_n. Arguments:
    input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, device=None, dtype=None.
    """

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
        device: Any = None,
        dtype: Any = None,
        **others: Any,
    ):
        _no_projection("RNN", others)
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, device=device, dtype=dtype,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


def _no_projection(name: str, others: dict[str, Any]) -> None:
    if "proj_size" in others:
        raise ArgumentError(f"{name}: takes no proj_size; only LSTM has projections")
    if others:
        raise ArgumentError(f"{name}: unexpected argument {next(iter(others))!r}")


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014), the reset gate acting behind the product, as in cuDNN.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr), z likewise, n = tanh(W_in x + b_in + r * (W_hn h + b_hn)), and the new h
    is (1 - z) * n + z * h. Rows of the weights are in the order r, z, n. `forward` gives the output and h_n.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **others: Any,
    ):
        _no_projection("GRU", others)
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device,
            dtype=dtype,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000).

    i = sigmoid(W_ii x + b_ii + W_hi h + b_hi), f and o likewise, g likewise with tanh; the new c is f * c + i * g and
    the new h is o * tanh(c), with `proj_size` W_hr times that (Sak et al. 2014). Rows of the weights are in the order
    i, f, g, o. `forward` takes hx = (h_0, c_0) and gives the output and (h_n, c_n).
    """

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
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of c_0: (layers x directions, batch, hidden_size)."""
        return self._states_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        expected = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], expected, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else tuple(s.index_select(1, permutation) for s in hx)

    def _states(self, input: Tensor, hx: Any, single: bool) -> list[Tensor]:
        given = hx if isinstance(hx, (tuple, list)) else (hx,)
        only_tensors("LSTM", *given)
        if len(given) != 2 or isinstance(hx, Tensor):
            raise ShapeError("LSTM: hx must be (h_0, c_0), two tensors")
        return [self._batched(s, single, name) for s, name in zip(given, ("hx[0]", "hx[1]"), strict=True)]

    def _widths(self) -> list[int]:
        return [self.proj_size or self.hidden_size, self.hidden_size]

    def _packed_states(self, states: list[Tensor]) -> Any:
        return tuple(states)
