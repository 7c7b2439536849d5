"""Example arguments with other sizes in the dynamic dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from ..errors import OnnxExporterError

__all__ = ["DynamicDim", "GraphInput", "read_dynamic_axes", "resized", "size_plans"]


@dataclass(frozen=True, slots=True)
class DynamicDim:
    """A dimension of an input whose size is not fixed.

    Attributes:
        label: Its name in the file.
        symbol: Dimensions with the same symbol have the same size.
    """

    label: str
    symbol: str


@dataclass(slots=True)
class GraphInput:
    """An input of the graph: its name, the example tensor, and its dynamic dimensions by position."""

    name: str
    tensor: Tensor
    dynamic: dict[int, DynamicDim]


def read_dynamic_axes(
    axes: object, names: Sequence[str], ndims: Sequence[int]
) -> tuple[list[dict[int, DynamicDim]], dict[str, dict[int, str]]]:
    """Read `dynamic_axes` or `dynamic_shapes` of `export`.

    Args:
        axes: By name, or one entry for each input: a list of positions, or a mapping from positions to names; or None.
        names: Names of the inputs.
        ndims: Number of dimensions of each input.

    Returns:
        The dynamic dimensions of each input; and those entries of the mapping that name no input, for the outputs.

    Raises:
        ArgumentError: An entry is of another type, or names a dimension that its input does not have.
    """
    if axes is None:
        return [{} for _ in names], {}
    entries = dict(axes) if isinstance(axes, Mapping) else None
    if entries is None:
        if not isinstance(axes, (tuple, list)) or len(axes) > len(names):
            raise ArgumentError(
                f"export: dynamic shapes are a dict by the inputs' names {list(names)}, or a tuple with one entry for "
                f"each, not {axes!r}"
            )
        entries = dict(zip(names, axes, strict=False))
    inputs = []
    for name, ndim in zip(names, ndims, strict=True):
        positions = _read_positions(name, entries.pop(name, None), ndim)
        inputs.append({position: _dynamic_dim(name, position, label) for position, label in positions.items()})
    outputs = {
        name: {p: label or f"{name}_dynamic_axes_{p}" for p, label in _read_positions(name, entry, None).items()}
        for name, entry in entries.items()
    }
    return inputs, outputs


def _dynamic_dim(name: str, position: int, label: str) -> DynamicDim:
    # Dimensions without a name of their own are taken to be equal at the same position of all inputs, as batches are.
    return DynamicDim(label or f"{name}_dynamic_axes_{position}", label or f"dimension {position}")


def _read_positions(name: str, entry: object, ndim: int | None) -> dict[int, str]:
    """Return the name of each dynamic dimension of a tensor, "" for one without a name."""
    if entry is None:
        return {}
    if isinstance(entry, Mapping):
        positions = {p: label for p, label in entry.items() if label is not None}
    elif isinstance(entry, (tuple, list)) and all(type(p) is int for p in entry):
        positions = dict.fromkeys(entry, "")
    elif isinstance(entry, (tuple, list)):
        positions = {p: label for p, label in enumerate(entry) if label is not None}
    else:
        raise ArgumentError(f"export: the dynamic dimensions of {name!r} are a dict or a list, not {entry!r}")
    result = {}
    for position, label in positions.items():
        if type(position) is not int or (ndim is not None and not -ndim <= position < ndim):
            raise ArgumentError(f"export: {name!r} has {ndim} dimensions, and no dimension {position!r}")
        text = label if isinstance(label, str) else getattr(label, "__name__", None)
        if label is not None and text is None:
            raise ArgumentError(f"export: the dynamic dimension {position} of {name!r} has no name, but {label!r}")
        result[position % ndim if ndim else position] = text or ""
    return result


def base_sizes(inputs: Sequence[GraphInput]) -> dict[str, int]:
    """Return the size of each symbol in the example arguments.

    Raises:
        ArgumentError: Two dimensions of one name have different sizes.
    """
    sizes: dict[str, int] = {}
    for graph_input in inputs:
        for position, dim in graph_input.dynamic.items():
            size = graph_input.tensor.meta.shape[position]
            if sizes.setdefault(dim.symbol, size) != size:
                raise ArgumentError(
                    f"export: the dynamic dimension {dim.label!r} is {sizes[dim.symbol]} in one example argument and "
                    f"{size} in {graph_input.name!r}; give dimensions of different sizes different names"
                )
    return sizes


def size_plans(inputs: Sequence[GraphInput]) -> list[list[dict[str, int]]]:
    """Return lists of runs to try in order, each with the size of every dynamic dimension in every run.

    Run 0 has the first sizes, run k another size in the k-th dimension, and the last run a third size in each (see
    `dynamic_sizes.find_formula`). No size is below 2, because a dimension of size 1 broadcasts. The first list makes
    dimensions shorter, so that indices of positions stay in range; the second longer, and the third by whole multiples,
    for models that divide a size.

    Raises:
        OnnxExporterError: A dynamic dimension is empty in the example arguments.
    """
    sizes = base_sizes(inputs)
    if not sizes:
        return [[{}]]
    if 0 in sizes.values():
        raise OnnxExporterError("export: a dynamic dimension must not be empty in the example arguments")
    plans: list[list[dict[str, int]]] = []
    # For each list: the three sizes of a dimension whose example size is n. The third is far from the first, so that
    # other formulas give other sizes.
    longer = {s: (max(n, 2), max(n, 2) + 1, 2 * max(n, 2) + 3) for s, n in sizes.items()}
    shorter = {s: (n, n - 1, max(n // 2, 2)) if n > 3 else longer[s] for s, n in sizes.items()}
    multiples = {s: (2 * n, 3 * n, 5 * n) if n == 1 else (n, 2 * n, 4 * n) for s, n in sizes.items()}
    for triples in (shorter, longer, multiples):
        first = {s: t[0] for s, t in triples.items()}
        plan = [first, *({**first, s: triples[s][1]} for s in sizes), {s: t[2] for s, t in triples.items()}]
        if plan not in plans:
            plans.append(plan)
    return plans


def resized(graph_input: GraphInput, sizes: Mapping[str, int]) -> Tensor:
    """Return the example tensor with other sizes: a part of it, or repeated, so that its values stay in their range."""
    from ...creation.sequences import arange  # lazy: start-up

    tensor = graph_input.tensor.detach()
    for position, dim in graph_input.dynamic.items():
        size, old_size = sizes[dim.symbol], tensor.meta.shape[position]
        if size != old_size:
            index = arange(size, device=tensor.meta.device) % old_size
            tensor = tensor.index_select(position, index)
    return tensor
