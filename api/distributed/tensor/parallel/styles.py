"""Divide linear and embedding layers between ranks: `parallelize_module` and the styles that its plan names.

A pair of linear layers needs one exchange in each direction: the first is divided by columns (output features), the
second by rows (input features). With `Shard(1)` as the layout outside of the pair, the layers between such pairs
(norms, dropout) work on parts of the sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

from .... import distributed as dist
from ....autograd import no_grad
from ....nn import functional as F
from ....nn.embeddings import Embedding
from ....nn.layers import Linear
from ....nn.module import Module
from ....nn.parameter import Parameter
from ....runtime.errors import ArgumentError, NotSupported, ShapeError
from ....runtime.tensor import Tensor
from ...shards import ShardGroup, ShardLayout
from ..placements import Placement, Replicate, Shard
from .exchanges import (
    gather_parts,
    gather_sequence,
    reduce_output,
    reduce_to_sequence,
    replicate_input,
    split_whole,
)

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "SequenceParallel", "parallelize_module"]

_REPLICATE = Replicate()


class ParallelStyle(ABC):
    """How a module is divided between ranks. `parallelize_module` applies it."""

    @abstractmethod
    def _apply(self, module: Module, group: Any) -> None:
        """Divide the module's parameters, and change its forward."""


class ColwiseParallel(ParallelStyle):
    """Divide a linear layer by output features, or an embedding by embedding dimensions.

    Args:
        input_layouts: Where the input is: `Replicate()`, or `Shard(dim)` for parts of the sequence.
        output_layouts: `Shard(-1)` leaves the output divided by features; `Replicate()` gathers it.
        use_local_output: Ignored: outputs are tensors of this rank.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ):
        self.input_layout = input_layouts or _REPLICATE
        self.output_layout = output_layouts or Shard(-1)

    def _apply(self, module: Module, group: Any) -> None:
        compute: Any
        if isinstance(module, Linear):
            _shard_parameter(module, "weight", 0, group)
            _shard_parameter(module, "bias", 0, group)
            compute = _linear
        elif isinstance(module, Embedding):
            _shard_parameter(module, "weight", 1, group)
            compute = _embedding
        else:
            raise NotSupported(f"ColwiseParallel: divides Linear and Embedding, not {type(module).__name__}")
        module.forward = partial(self._forward, module, compute, group)  # type: ignore[method-assign]

    def _forward(self, module: Module, compute: Any, group: Any, input: Tensor) -> Tensor:
        if isinstance(self.input_layout, Shard):
            input = gather_sequence(input, self.input_layout.dim, group)
        elif input.meta.dtype.kind == "f":
            input = replicate_input(input, group)
        output: Tensor = compute(module, input)
        return gather_parts(output, -1, group) if isinstance(self.output_layout, Replicate) else output


class RowwiseParallel(ParallelStyle):
    """Divide a linear layer by input features, or an embedding by rows of its table.

    Args:
        input_layouts: `Shard(-1)`: the input is divided by features, as `ColwiseParallel` leaves it; `Replicate()`:
            every rank has the whole. Indices of an embedding are always on every rank.
        output_layouts: `Replicate()` gives every rank the whole output, `Shard(dim)` a part of the sequence.
        use_local_output: Ignored: outputs are tensors of this rank.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ):
        self.input_layout = input_layouts or Shard(-1)
        self.output_layout = output_layouts or _REPLICATE

    def _apply(self, module: Module, group: Any) -> None:
        if isinstance(module, Linear):
            _shard_parameter(module, "weight", 1, group)
            if module.bias is not None and isinstance(self.output_layout, Shard):
                _sum_gradient(module.bias, group)
            module.forward = partial(self._linear_forward, module, group)  # type: ignore[method-assign]
        elif isinstance(module, Embedding):
            if module.padding_idx is not None or module.max_norm is not None:
                raise NotSupported("RowwiseParallel: an Embedding with padding_idx or max_norm cannot be divided")
            _shard_parameter(module, "weight", 0, group)
            module.forward = partial(self._embedding_forward, module, group)  # type: ignore[method-assign]
        else:
            raise NotSupported(f"RowwiseParallel: divides Linear and Embedding, not {type(module).__name__}")

    def _reduce(self, output: Tensor, group: Any) -> Tensor:
        if isinstance(self.output_layout, Shard):
            return reduce_to_sequence(output, self.output_layout.dim, group)
        return reduce_output(output, group)

    def _linear_forward(self, module: Linear, group: Any, input: Tensor) -> Tensor:
        if isinstance(self.input_layout, Replicate):
            input = split_whole(input, -1, group)
        output = self._reduce(F.linear(input, module.weight), group)
        return output if module.bias is None else output + module.bias

    def _embedding_forward(self, module: Embedding, group: Any, input: Tensor) -> Tensor:
        rows = module.weight.shape[0]
        local = input - dist.get_rank(group) * rows
        is_here = (local >= 0).logical_and(local < rows)
        output = F.embedding(local.clamp(0, rows - 1), module.weight)
        return self._reduce(output * is_here.unsqueeze(-1).to(output.dtype), group)


class SequenceParallel(ParallelStyle):
    """Let a norm or dropout work on parts of the sequence; its parameters stay whole, with summed gradients.

    Args:
        sequence_dim: Dimension of the sequence. It documents the layout: the module sees this rank's part.
        use_local_output: Ignored: outputs are tensors of this rank.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = True):
        self.sequence_dim = sequence_dim

    def _apply(self, module: Module, group: Any) -> None:
        for param in module.parameters():
            _sum_gradient(param, group)


def parallelize_module(
    module: Module, device_mesh: Any = None, parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None
) -> Module:
    """Divide layers of a module between the ranks of a group. All ranks need the same parameters before.

    Args:
        module: The module.
        device_mesh: The process group; None for all ranks.
        parallelize_plan: A style for the module itself, or styles by paths of submodules, in which `*` stands for any
            name.

    Returns:
        `module`.

    Raises:
        ArgumentError: No submodule has a path of the plan.
        NotSupported: A style cannot divide a submodule.
        ShapeError: A size is not a multiple of the number of ranks.
        TypeError: The plan has something else than styles.
    """
    styles = [parallelize_plan] if isinstance(parallelize_plan, ParallelStyle) else (parallelize_plan or {}).values()
    for style in styles:
        if not isinstance(style, ParallelStyle):
            raise TypeError(
                f"parallelize_module: the plan has a {type(style).__name__} in place of a style such as "
                "ColwiseParallel()"
            )
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan._apply(module, device_mesh)
        return module
    for path, style in (parallelize_plan or {}).items():
        submodules = [submodule for name, submodule in module.named_modules() if _matches(path, name)]
        if not submodules:
            raise ArgumentError(f"parallelize_module: {type(module).__name__} has no submodule {path!r}")
        for submodule in submodules:
            style._apply(submodule, device_mesh)
    return module


def _matches(pattern: str, path: str) -> bool:
    names, parts = path.split("."), pattern.split(".")
    return len(names) == len(parts) and all(part in ("*", name) for part, name in zip(parts, names, strict=True))


def _shard_parameter(module: Module, name: str, dim: int, group: Any) -> None:
    """Replace a parameter by this rank's part along `dim`."""
    param = module._parameters[name]
    if param is None:
        return
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    shape = tuple(param.meta.shape)
    size, rest = divmod(shape[dim], world_size)
    if rest:
        raise ShapeError(
            f"{type(module).__name__}: dimension {dim} of {name}, of shape {list(shape)}, is not a multiple of "
            f"{world_size} ranks"
        )
    with no_grad():
        part = param.detach().narrow(dim, rank * size, size).clone()
    shard = Parameter(part, requires_grad=param.requires_grad)
    shard.shard_layout = ShardLayout(shape, dim, rank * size, (rank + 1) * size)  # type: ignore[attr-defined]
    shard.shard_group = ShardGroup(group)  # type: ignore[attr-defined]
    module._parameters[name] = shard


def _sum_gradient(param: Tensor, group: Any) -> None:
    """Add the gradients of the ranks, each of which is that of a part of the sequence."""

    def sum_over_ranks(grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total, group=group)
        return total

    if param.requires_grad:
        param.register_hook(sum_over_ranks)


def _linear(module: Linear, input: Tensor) -> Tensor:
    return F.linear(input, module.weight, module.bias)


def _embedding(module: Embedding, input: Tensor) -> Tensor:
    return F.embedding(input, module.weight)
