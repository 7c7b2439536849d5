"""`fully_shard`: divide parameters, gradients and optimizer state of modules between the ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from ...autograd import is_grad_enabled
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...runtime.autograd.ready_leaves import backward_runs
from ...runtime.device import Device
from ...runtime.dtypes import DType
from ...runtime.errors import ArgumentError, NotSupported
from ...runtime.tensor import Tensor
from .sharded_unit import ShardedParameter, ShardedUnit

__all__ = ["FSDPModule", "fully_shard"]


class FSDPModule:
    """The methods that `fully_shard` adds to a module.

    Example:
        >>> from weftgrad.distributed.fsdp import fully_shard
        >>> fully_shard(model).set_requires_gradient_sync(False)  # doctest: +SKIP
    """

    _sharded_units: list[ShardedUnit]

    def unshard(self) -> None:
        """Gather the module's whole parameters, until `reshard`."""
        for unit in self._sharded_units:
            unit.unshard()

    def reshard(self) -> None:
        """Release the module's whole parameters."""
        for unit in self._sharded_units:
            unit.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Set whether backward reduces gradients. If False, backward accumulates whole gradients on this rank.

        Args:
            requires_gradient_sync: True to reduce.
            recurse: Whether to set it for all submodules, too.
        """
        assert isinstance(self, Module)
        for module in self.modules() if recurse else [self]:
            for unit in getattr(module, "_sharded_units", ()):
                unit.syncs = requires_gradient_sync

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether forward releases the whole parameters.

        Args:
            reshard_after_forward: True to release them, and gather them again for backward.
            recurse: Whether to set it for all submodules, too.
        """
        assert isinstance(self, Module)
        for module in self.modules() if recurse else [self]:
            for unit in getattr(module, "_sharded_units", ()):
                unit.reshards_after_forward = reshard_after_forward


def fully_shard(
    module: Module,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | None = None,
    mp_policy: object = None,
    offload_policy: object = None,
    ignored_params: Iterable[Parameter] | None = None,
) -> Module:
    """Divide a module's parameters, with their gradients and optimizer state, between the ranks.

    Call it for the blocks of a model first, then for the model, and create the optimizer afterwards. The parameters of
    one call are gathered together: before the module's forward, and again before its backward. After backward, their
    gradients are averaged over the ranks, and each rank keeps its part. Outside of forward and backward, a parameter is
    a `ShardedParameter`: a vector with this rank's part, whose `full_tensor()` returns the whole. All ranks must
    construct the same parameters (set the same seed).

    Args:
        module: The module. Its class becomes a subclass that has the methods of `FSDPModule`.
        mesh: The process group; None for all ranks.
        reshard_after_forward: Release the whole parameters between forward and backward. None: True, but False for a
            module with submodules that were sharded before: it is usually the whole model, which needs them again soon.
        mp_policy: Must be None; use autocast for mixed precision.
        offload_policy: Must be None.
        ignored_params: Parameters that every rank has completely. Their gradients are not averaged.

    Returns:
        `module`.

    Raises:
        ArgumentError: It was called for this module already.
        NotSupported: `mp_policy` or `offload_policy` is passed.
        TypeError: `module` is no module.

    Example:
        >>> for block in model.blocks:  # on every rank  # doctest: +SKIP
        ...     fully_shard(block)
        >>> fully_shard(model)  # doctest: +SKIP
        >>> optimizer = wg.optim.AdamW(model.parameters())  # doctest: +SKIP
    """
    if mp_policy is not None or offload_policy is not None:
        raise NotSupported("fully_shard: mp_policy and offload_policy are not supported; use autocast")
    if not isinstance(module, Module):
        raise TypeError(
            f"fully_shard: expects a module, not {type(module).__name__}; call it for each module of a list"
        )
    if isinstance(module, FSDPModule):
        raise ArgumentError("fully_shard: was called for this module already")
    ignored = {id(param) for param in ignored_params or ()}
    owners: dict[int, list[tuple[Module, str]]] = {}
    params_by_layout: dict[tuple[DType, Device], list[Parameter]] = {}
    for submodule in module.modules():
        for name, param in submodule._parameters.items():
            if param is None or isinstance(param, ShardedParameter) or id(param) in ignored or not param.meta.numel:
                continue
            if id(param) not in owners:
                params_by_layout.setdefault((param.meta.dtype, param.meta.device), []).append(param)
            owners.setdefault(id(param), []).append((submodule, name))
    has_sharded_parts = any(isinstance(submodule, FSDPModule) for submodule in module.modules())
    reshards = not has_sharded_parts if reshard_after_forward is None else bool(reshard_after_forward)
    units = [
        ShardedUnit([owners[id(param)] for param in params], params, mesh, reshards)
        for params in params_by_layout.values()
    ]
    module.__class__ = type(f"FSDP{type(module).__name__}", (FSDPModule, type(module)), {})
    object.__setattr__(module, "_sharded_units", units)
    module.register_forward_pre_hook(_unshard, prepend=True)
    module.register_forward_hook(_finish_forward)
    return module


def _unshard(module: Module, _: tuple[object, ...]) -> None:
    """Gather the whole parameters: the hook before forward."""
    units: list[ShardedUnit] = module._sharded_units  # type: ignore[assignment]
    for unit in units:
        if not backward_runs.depth:  # checkpoints run forward during backward
            unit.drop_failed_backward()
        unit.unshard()


def _finish_forward(module: Module, _: tuple[object, ...], output: object) -> None:
    """Release the whole parameters, and prepare backward: the hook after forward."""
    units: list[ShardedUnit] = module._sharded_units  # type: ignore[assignment]
    tensors = list(_tensors_in(output, set())) if is_grad_enabled() else []
    outputs = [tensor for tensor in tensors if tensor.requires_grad]
    for tensor in outputs:
        tensor.register_hook(lambda grad: _begin_backward(units))
    for unit in units:
        if is_grad_enabled() and not tensors:
            unit.keep_after_forward()  # the output may hide tensors, whose backward needs the parameters
        else:
            unit.finish_forward(bool(outputs))


def _begin_backward(units: list[ShardedUnit]) -> None:
    """Gather the whole parameters for backward: a hook of the tensors in the module's output."""
    for unit in units:
        unit.begin_backward()


def _tensors_in(value: object, visited: set[int]) -> Iterator[Tensor]:
    """Yield the tensors in a value, its elements and its attributes, without modules and parameters."""
    if isinstance(value, (Module, Parameter, type, ModuleType)) or id(value) in visited:
        return
    visited.add(id(value))
    parts: Iterable[object] = ()
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in parts:
        yield from _tensors_in(part, visited)
