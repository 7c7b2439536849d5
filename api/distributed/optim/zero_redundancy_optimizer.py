"""`ZeroRedundancyOptimizer`: each rank has the optimizer's state of a part of the parameters, and updates these.

This is stage 1 of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054, section 5.1): gradients are averaged as usual, every
rank updates its parameters, and broadcasts the new values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ... import distributed as dist
from ...autograd import enable_grad
from ...nn.parallel.state_broadcast import broadcast_tensors
from ...optim.optimizer import Optimizer
from ...runtime.device import Device
from ...runtime.errors import ArgumentError, NotSupported
from ..algorithms.join import Joinable, JoinHook

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is divided between the ranks.

    Parameters are assigned to ranks by size, the largest first, each to the rank with the fewest elements so far.
    Gradients must be equal on all ranks, as `DistributedDataParallel` makes them.

    Args:
        params: Parameters, or dicts of parameter groups, equal on all ranks.
        optimizer_class: Class of the optimizer that updates each rank's parameters.
        process_group: The group; None for all ranks.
        parameters_as_bucket_view: Ignored: small parameters are packed for the broadcast only.
        overlap_with_ddp: Not supported.
        **defaults: Options of `optimizer_class`.

    Raises:
        NotSupported: `overlap_with_ddp` is True.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ):
        if overlap_with_ddp:
            raise NotSupported("ZeroRedundancyOptimizer: overlap_with_ddp is not supported; call step() after backward")
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise TypeError(f"ZeroRedundancyOptimizer: optimizer_class must be an Optimizer, not {optimizer_class!r}")
        Joinable.__init__(self)
        self.process_group = process_group
        self.world_size, self.rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        self._optimizer_class, self._optimizer_defaults = optimizer_class, defaults
        self._full_state: dict[str, Any] | None = None
        self.optim: Optimizer | None = None
        super().__init__(params, {})
        self._rehearsals = ()  # the optimizer of this rank's parameters reserves memory itself
        self._build()

    def _build(self) -> None:
        """Assign the parameters to ranks, and create the optimizer of this rank's parameters."""
        sizes = [0] * self.world_size
        owners: dict[int, int] = {}
        positions = {id(param): position for position, param in enumerate(self._all_params())}
        by_size = sorted(self._all_params(), key=lambda param: (-param.meta.numel, positions[id(param)]))
        for param in by_size:
            rank = sizes.index(min(sizes))
            owners[id(param)] = rank
            sizes[rank] += param.meta.numel
        self._owners = owners
        groups = []
        for group in self.param_groups:
            own = [param for param in group["params"] if owners[id(param)] == self.rank]
            groups.append({**group, "params": own})
        if not any(group["params"] for group in groups):
            raise ArgumentError(
                f"ZeroRedundancyOptimizer: {len(owners)} parameters for {self.world_size} ranks; rank {self.rank} has "
                "none. Use fewer ranks, or the optimizer itself"
            )
        self.optim = self._optimizer_class(groups, **self._optimizer_defaults)
        for group, own_group in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in own_group.items():
                if name != "params":
                    group.setdefault(name, value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters. The parameters are assigned to ranks anew; existing state is dropped.

        Args:
            param_group: Dict with `params` and options.
        """
        super().add_param_group(param_group)
        if self.optim is not None:
            self._build()

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's parameters, and copy the others from their ranks.

        Args:
            closure: Function that computes the loss and its gradients again.
            **kwargs: Arguments of the optimizer's `step`.

        Returns:
            The closure's result, or None.
        """
        assert self.optim is not None
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group, own_group in zip(self.param_groups, self.optim.param_groups, strict=True):
            own_group.update({name: value for name, value in group.items() if name != "params"})
        self.optim.step(**kwargs)
        self._broadcast_params()
        return loss

    def _broadcast_params(self) -> None:
        params = list(self._all_params())
        for rank in range(self.world_size):
            owned = [param for param in params if self._owners[id(param)] == rank]
            broadcast_tensors(owned, self.process_group, rank)

    # state

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the state of all ranks on one rank, for its `state_dict`. Call it on all ranks.

        Args:
            to: The rank in the group.
        """
        assert self.optim is not None
        positions = {id(param): position for position, param in enumerate(self._all_params())}
        own = self.optim.state_dict()
        own_params = [param for group in self.optim.param_groups for param in group["params"]]
        entries = {positions[id(own_params[index])]: value for index, value in own["state"].items()}
        root = to if self.process_group is None else dist.get_global_rank(self.process_group, to)
        of_ranks: list[Any] | None = [None] * self.world_size if self.rank == to else None
        dist.gather_object(entries, of_ranks, root, self.process_group)
        if of_ranks is None:
            self._full_state = None
            return
        state: dict[Any, Any] = {}
        for rank_entries in of_ranks:
            state.update(rank_entries)
        self._full_state = {index: state[index] for index in sorted(state)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state dict of an optimizer of all parameters, after `consolidate_state_dict` on its rank.

        Raises:
            RuntimeError: `consolidate_state_dict` was not called before, or gathered on another rank.
        """
        if self._full_state is None:
            raise RuntimeError(
                f"ZeroRedundancyOptimizer.state_dict: rank {self.rank} has the state of its own parameters only; call "
                f"consolidate_state_dict(to={self.rank}) on all ranks first"
            )
        groups, count = [], 0
        for group in self.param_groups:
            indices = list(range(count, count + len(group["params"])))
            groups.append({**group, "params": indices})
            count += len(indices)
        return {"state": self._full_state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state dict of an optimizer of all parameters; each rank takes the state of its own parameters.

        Args:
            state_dict: Result of `state_dict`, of any number of ranks, or of `optimizer_class` itself.
        """
        assert self.optim is not None
        saved_indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        own_ids = {id(param) for group in self.optim.param_groups for param in group["params"]}
        params = list(self._all_params())
        if len(saved_indices) != len(params):
            raise ArgumentError(
                f"ZeroRedundancyOptimizer.load_state_dict: the state is of {len(saved_indices)} parameters, and the "
                f"optimizer has {len(params)}"
            )
        own_indices = [index for index, param in zip(saved_indices, params, strict=True) if id(param) in own_ids]
        numbers = {index: number for number, index in enumerate(own_indices)}
        groups = [
            {**group, "params": [numbers[index] for index in group["params"] if index in numbers]}
            for group in state_dict["param_groups"]
        ]
        state = {numbers[index]: value for index, value in state_dict["state"].items() if index in numbers}
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})

    # uneven inputs

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank without batches does: it takes part in the broadcasts.

        Args:
            **kwargs: Ignored.
        """
        return _ShadowStep(self)

    @property
    def join_device(self) -> Device:
        """The device of the parameters."""
        return next(iter(self._all_params())).meta.device

    @property
    def join_process_group(self) -> Any:
        """The process group."""
        return self.process_group


class _ShadowStep(JoinHook):
    """What a rank without batches does for a `ZeroRedundancyOptimizer`."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer):
        self._optimizer = optimizer

    def main_hook(self) -> None:
        """Update this rank's parameters by the gradients that exist, and take part in the broadcasts."""
        self._optimizer.step()
