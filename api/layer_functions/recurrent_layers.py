"""The layers of a recurrent network in order, with checks of the operands and dropout between layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .._generated import ops
from ..runtime.autocast import match_autocast_dtype
from ..runtime.context import state
from ..runtime.dispatch import call
from ..runtime.dtypes import float64
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..runtime.modes import call_composite
from ..runtime.records import Operand, OpRecord, registry
from ..runtime.recurrent.directions import CellKind, Weights
from ..runtime.recurrent.steps import Geometry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors
from .recurrent_graph import layer

__all__ = ["run_layers", "run_network"]

# What modes see of a layer, instead of the ops of each step. After the operands named here come those of the weights of
# each direction, with None for missing ones. Only regular sequences have a length.
_LAYER = OpRecord(
    "recurrent_layer", "composite", (Operand("input"), Operand("h_0"), Operand("c_0", "optional")), (),
    ("cell", "directions", "length", "batch"),
)  # fmt: skip


def run_network(
    kind: CellKind, x: Tensor, sizes: list[int], hx: Tensor | Sequence[Tensor], params: Sequence[Tensor], biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Check the arguments, then run the network on x, `(rows, input_size)`; step t has `sizes[t]` of the rows."""
    if not kind.cell:
        only_tensors(kind.name, hx)
    states = (hx,) if isinstance(hx, Tensor) and not kind.cell else tuple(hx)
    if len(states) != 1 + kind.cell:
        raise ArgumentError(f"{kind.name}: hx must be h_0{' and c_0' if kind.cell else ''}, not {len(states)} tensors")
    only_tensors(kind.name, x, *states)
    directions = 1 + bool(bidirectional)
    projected = kind.cell and states[0].meta.shape[-1] != states[1].meta.shape[-1]
    grouped = _group_parameters(kind, list(params), bool(biases), projected, layers * directions)
    return run_layers(kind, x, sizes, states, grouped, layers, dropout if train else 0.0, directions)


def run_layers(
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
        x, *final_states = _run_layer(
            kind, geometry, x, initial[0], initial[1] if kind.cell else None, grouped[first : first + directions]
        )
        layer_finals.append(final_states)
        if dropout and layer_index < layers - 1:
            x = _apply_dropout(x, dropout)
    return x, layer_finals[0] if layers == 1 else [cat(states) for states in zip(*layer_finals, strict=True)]


def _run_layer(
    kind: CellKind, geometry: Geometry, x: Tensor, h0: Tensor, c0: Tensor | None, weights: list[Weights]
) -> list[Tensor]:
    operands = (x, h0, c0, *(w for direction_weights in weights for w in direction_weights))
    statics = (kind.name, len(weights), geometry.length if geometry.is_uniform else None, geometry.batch)
    return call_composite(_LAYER, operands, statics, lambda: layer(kind, geometry, x, h0, c0, weights))


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
