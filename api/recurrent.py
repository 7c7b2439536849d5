"""Recurrent networks as functions: whole networks and single cells. Names and arguments are PyTorch's.

A network's parameters are a list, layer by layer and direction by direction: weight_ih, weight_hh, then with biases
bias_ih, bias_hh, then with a projection weight_hr. `nn.RNN`, `nn.LSTM` and `nn.GRU` own such lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from ._recurrent import SORTS, Sort, Weights
from ._recurrent_graph import layer
from ._stepping import Geometry
from .joining import cat
from .runtime import views
from .runtime.autocast import alike
from .runtime.context import state
from .runtime.dispatch import call
from .runtime.dtypes import float64
from .runtime.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell"]


def lstm(
    input: Tensor,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: Any,
    dropout: Any,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """A network of long short-term memory: (output, h_n, c_n).

    input: (length, batch, input), or with `batch_first` (batch, length, input). hx: h_0 (layers x directions, batch,
    hidden or projected) and c_0 (layers x directions, batch, hidden). params: see the module. The equations are those
    of Hochreiter and Schmidhuber 1997 with the forget gates of Gers et al. 2000; the projection is that of Sak et al.
    2014. Called as `lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`, for
    the rows and batch sizes of a `PackedSequence`.

    Raises `ShapeError`, `DTypeError` or `DeviceError` for operands that do not fit together.
    """
    out, h_n, c_n = _called(
        "lstm", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )
    return out, h_n, c_n  # type: ignore[return-value]


def _one_state(name: str, kind: str) -> Any:
    def network(
        input: Tensor,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: Any,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return _called(name, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)[:2]

    network.__name__ = network.__qualname__ = name
    network.__doc__ = f"""{kind}: (output, h_n).

    input: (length, batch, input), or with `batch_first` (batch, length, input). hx: (layers x directions, batch,
    hidden). params: see the module. Called as `{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout,
    train, bidirectional)`, for the rows and batch sizes of a `PackedSequence`.

    Raises `ShapeError`, `DTypeError` or `DeviceError` for operands that do not fit together.
    """
    return network


gru = _one_state("gru", "A network of gated recurrent units (Cho et al. 2014)")
rnn_tanh = _one_state("rnn_tanh", "An Elman network (Elman 1990) with tanh")
rnn_relu = _one_state("rnn_relu", "An Elman network (Elman 1990) with rectified units")


def _called(name: str, *arguments: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Either form of a network's call: the second has batch sizes behind the input, and no `batch_first`."""
    sort = SORTS[name]
    if isinstance(arguments[2], Tensor) or (sort.cell and isinstance(arguments[1], Tensor)):
        data, batch_sizes, hx, params, biases, layers, dropout, train, bidirectional = arguments
        sizes = batch_sizes.tolist() if isinstance(batch_sizes, Tensor) else list(batch_sizes)
        return _network(sort, data, sizes, hx, params, biases, layers, dropout, train, bidirectional)
    input, hx, params, biases, layers, dropout, train, bidirectional, batch_first = arguments
    only_tensors(name, input)
    if input.meta.ndim != 3:
        raise ShapeError(f"{name}: the input must have 3 dimensions, not shape {list(input.meta.shape)}")
    turned = ops.transpose(input, 0, 1) if batch_first else input
    length, batch, features = turned.meta.shape
    if not length:
        raise ShapeError(f"{name}: the sequence has no steps: the input has shape {list(input.meta.shape)}")
    rows = views.reshape(turned, (length * batch, features))
    out, h_n, c_n = _network(sort, rows, [batch] * length, hx, params, biases, layers, dropout, train, bidirectional)
    out = views.reshape(out, (length, batch, out.meta.shape[1]))
    return ops.transpose(out, 0, 1) if batch_first else out, h_n, c_n


def _network(
    sort: Sort, x: Tensor, sizes: list[int], hx: Any, params: Any, biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The network over rows of the input, `sizes` of them a step."""
    states = tuple(hx) if sort.cell else (hx,)
    if len(states) != 1 + sort.cell:
        raise ArgumentError(f"{sort.name}: hx must be h_0{' and c_0' if sort.cell else ''}, not {len(states)} tensors")
    only_tensors(sort.name, x, *states)
    directions = 1 + bool(bidirectional)
    projected = sort.cell and states[0].meta.shape[-1] != states[1].meta.shape[-1]
    grouped = _grouped(sort, list(params), bool(biases), projected, layers * directions)
    return _layers(sort, x, sizes, states, grouped, layers, dropout if train else 0.0, directions)


def _layers(
    sort: Sort, x: Tensor, sizes: list[int], states: tuple[Tensor, ...], grouped: list[Weights], layers: int,
    dropout: float, directions: int,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Layer after layer, with dropout between them."""
    x, states, grouped = _lowered(x, states, grouped)
    geometry = Geometry(sizes)
    _check(sort, x, geometry, states, grouped, directions)
    ended: list[Any] = []
    for number in range(layers):
        first = number * directions
        initial = [s if layers == 1 else ops.narrow(s, 0, first, directions) for s in states]
        initial = [s if s.meta.contiguous else ops.contiguous_copy(s) for s in initial]
        x = x if x.meta.contiguous else ops.contiguous_copy(x)
        x, *last = layer(
            sort, geometry, x, initial[0], initial[1] if sort.cell else None, grouped[first : first + directions]
        )
        ended.append(last)
        if dropout and number < layers - 1:
            x = _dropped(x, dropout)
    finals = [parts[0] if layers == 1 else cat(parts) for parts in zip(*ended, strict=True) if parts[0] is not None]
    return x, finals[0], finals[1] if sort.cell else None


def _dropped(x: Tensor, p: float) -> Tensor:
    from .nn.functional import dropout  # which needs this package

    return dropout(x, p)


def _grouped(sort: Sort, params: list[Tensor], biases: bool, projected: bool, count: int) -> list[Weights]:
    """The parameters of every layer and direction."""
    each = 2 + 2 * biases + projected
    if len(params) != each * count:
        wanted = f"{each} parameters a layer and direction, {each * count} in all"
        raise ArgumentError(f"{sort.name}: takes {wanted}, not {len(params)}")
    only_tensors(sort.name, *params)
    found = []
    for i in range(0, len(params), each):
        own: list[Any] = params[i : i + each]
        hr = own.pop() if projected else None
        found.append(Weights(own[0], own[1], own[2] if biases else None, own[3] if biases else None, hr))
    return found


def _lowered(
    x: Tensor, states: tuple[Tensor, ...], grouped: list[Weights]
) -> tuple[Tensor, tuple[Tensor, ...], list[Weights]]:
    """Under autocast everything in its half type: gates are computed in float32 between products in that."""
    region = state().autocast
    lower = None if region is None else region.enabled.get(x.meta.device.type)
    if lower is None or x.meta.dtype is float64:
        return x, states, grouped
    if x.meta.dtype is not lower:
        x = call(registry["copy"], (x,), (lower,))
    cast = [Weights._make(None if w is None else alike(w, x) for w in each) for each in grouped]
    return x, tuple(alike(s, x) for s in states), cast


def _check(
    sort: Sort, x: Tensor, geometry: Geometry, states: tuple[Tensor, ...], grouped: list[Weights], directions: int
) -> None:
    """Raise `ShapeError`, `DTypeError` or `DeviceError` naming the operand that does not fit."""
    name, own = sort.name, x.meta
    if own.dtype.kind != "f":
        raise DTypeError(f"{name}: takes floating dtypes, not {own.dtype.name}; convert with .to()")
    if own.ndim != 2 or own.shape[0] != geometry.rows:
        raise ShapeError(f"{name}: batch sizes add up to {geometry.rows} rows, the data has shape {list(own.shape)}")
    grows = any(later > earlier for earlier, later in pairwise(geometry.sizes))
    if grows or (geometry.batch and 0 in geometry.sizes):
        raise ShapeError(f"{name}: batch sizes must be positive and never grow, not {list(geometry.sizes)[:20]}")
    first = grouped[0]
    size = first.hh.meta.shape[0] // sort.gates
    width = size if first.hr is None else first.hr.meta.shape[0]
    for i, each in enumerate(grouped):
        features = own.shape[1] if i < directions else width * directions
        rows = sort.gates * size
        wanted: list[tuple[int, ...]] = [(rows, features), (rows, width), (rows,), (rows,), (width, size)]
        for field, tensor, shape in zip(_FIELDS, each, wanted, strict=True):
            if tensor is not None:
                _fits(name, f"{field}_l{i // directions}" + "_reverse" * (i % directions), tensor, shape, x)
    for what, tensor, last in zip(("h_0", "c_0"), states, (width, size), strict=False):
        _fits(name, what, tensor, (len(grouped), geometry.batch, last), x)


_FIELDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def _fits(name: str, what: str, tensor: Tensor, shape: tuple[int, ...], x: Tensor) -> None:
    own, given = tensor.meta, x.meta
    if own.shape != shape:
        told = f"{what} has shape {list(own.shape)}; to an input of {given.shape[1]} features and the other weights"
        raise ShapeError(f"{name}: {told}, {list(shape)} would fit")
    if own.dtype is not given.dtype:
        raise DTypeError(f"{name}: the input is {given.dtype.name} and {what} {own.dtype.name}; convert one with .to()")
    if own.device is not given.device:
        raise DeviceError(f"{name}: the input is on {given.device} and {what} on {own.device}; move one with .to()")


# Cells ----------------------------------------------------------------------------------------------------------------


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A step of long short-term memory: (h, c) from (batch, input), or (input,), and hx, the states before it.

    Gates are the rows of the weights in the order input, forget, cell, output. The equations are those of `lstm`.
    Raises `ShapeError`, `DTypeError` or `DeviceError` for operands that do not fit together.
    """
    h, c = _cell("lstm", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """A step of a gated recurrent unit: h from (batch, input), or (input,), and hx, the state before it.

    Gates are the rows of the weights in the order reset, update, new.
    Raises `ShapeError`, `DTypeError` or `DeviceError` for operands that do not fit together.
    """
    return _cell("gru", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """A step of an Elman network: tanh(w_ih input + b_ih + w_hh hx + b_hh), for (batch, input) or (input,).

    Raises `ShapeError`, `DTypeError` or `DeviceError` for operands that do not fit together.
    """
    return _cell("rnn_tanh", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """As `rnn_tanh_cell`, with the positive part in place of tanh."""
    return _cell("rnn_relu", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def _cell(
    name: str, input: Tensor, states: tuple[Tensor, ...], w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any
) -> list[Tensor]:
    """A network of one layer over one step."""
    only_tensors(f"{name}_cell", input, *states, w_ih, w_hh)
    if input.meta.ndim not in (1, 2):
        raise ShapeError(f"{name}_cell: the input must have 1 or 2 dimensions, not shape {list(input.meta.shape)}")
    single = input.meta.ndim == 1
    for each in states:
        if each.meta.ndim != input.meta.ndim:
            raise ShapeError(
                f"{name}_cell: hx has {each.meta.ndim} dimensions and the input {input.meta.ndim}; they must be as many"
            )
    rows = ops.unsqueeze(input, 0) if single else input
    hx = [views.reshape(s, (1, 1, *s.meta.shape) if single else (1, *s.meta.shape)) for s in states]
    sort, weights = SORTS[name], [Weights(w_ih, w_hh, b_ih, b_hh)]
    found: list[Any]
    _, *found = _layers(sort, rows, [rows.meta.shape[0]], tuple(hx), weights, 1, 0.0, 1)
    return [views.reshape(f, s.meta.shape) for f, s in zip(found, states, strict=False)]
