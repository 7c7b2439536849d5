"""`ShardedUnit`: parameters that are gathered, used and released together.

The unit's parameters form one vector, padded to a multiple of the number of ranks. Each rank has an equal part of it,
with gradient and optimizer state. An all-gather fills the whole vector, over which the parameters are tensors without
copies; after backward, a reduce-scatter averages the gradients' vector into the parts (Rajbhandari et al. 2020, ZeRO,
arXiv 1910.02054, section 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ... import distributed as dist
from ...autograd import no_grad
from ...creation.factories import empty, zeros
from ...nn.module import Module
from ...nn.parallel.buckets import view_of
from ...nn.parameter import Parameter
from ...runtime.autograd.ready_leaves import is_reached, queue_callback, set_ready_hook
from ...runtime.device import meta
from ...runtime.dispatch import call_into
from ...runtime.records import registry
from ...runtime.releasable_memory import ReleasableMemory
from ...runtime.tensor import Tensor
from ..shards import ShardGroup, ShardLayout

if TYPE_CHECKING:
    from ..works import Work

__all__ = ["ShardedParameter", "ShardedUnit"]


class ShardedParameter(Parameter):
    """This rank's part of a parameter: a vector of consecutive elements of the flattened parameter.

    Attributes:
        full_shape: Shape of the whole parameter.
        full_start: Position of this part's first element in the flattened parameter.
        group: The `ShardedUnit` that it belongs to.
    """

    full_shape: tuple[int, ...]
    full_start: int
    group: ShardedUnit

    @property
    def shard_layout(self) -> ShardLayout:
        """Which part of the whole parameter this is, for checkpoints."""
        return ShardLayout(self.full_shape, None, self.full_start, self.full_start + self.meta.numel)

    @property
    def shard_group(self) -> ShardGroup:
        """The ranks that have the parts."""
        return ShardGroup(self.group._process_group)

    def full_tensor(self) -> Tensor:
        """Return the whole parameter, gathered from all ranks. Call it on all ranks."""
        return self.group.gather_parameter(self)


class ShardedUnit:
    """The parameters of a module that `fully_shard` divides between ranks, all of one dtype and device.

    Args:
        owners: For each parameter, the modules and names under which it is registered.
        params: The parameters, equal on all ranks.
        process_group: The process group; None for all ranks.
        reshards_after_forward: Release the gathered parameters between forward and backward.

    Attributes:
        shards: This rank's parts.
        syncs: Whether backward reduces gradients. If False, backward accumulates whole gradients on this rank.
    """

    def __init__(
        self,
        owners: Sequence[Sequence[tuple[Module, str]]],
        params: Sequence[Parameter],
        process_group: Any,
        reshards_after_forward: bool,
    ):
        self._owners, self._process_group = owners, process_group
        self.reshards_after_forward = reshards_after_forward
        self.syncs = True
        self.world_size, self.rank = dist.get_world_size(process_group), dist.get_rank(process_group)
        first = params[0].meta
        self._offsets: list[int] = []
        offset = 0
        for param in params:
            self._offsets.append(offset)
            offset += param.meta.numel
        self._count = offset
        self._shard_size = -(-offset // self.world_size)
        padded = self._shard_size * self.world_size
        self._memory = ReleasableMemory(first.device, padded * first.dtype.itemsize)
        layout = meta(first.dtype, (padded,), None, first.device)
        self._full_vector = Tensor(self._memory.storage, layout, self._memory.storage.start)
        self._full_grad: Tensor | None = None
        self._shard_vector = self._cut_shard(params)
        self.shards = [self._new_shard(param, start) for param, start in zip(params, self._offsets, strict=True)]
        self._full = [self._new_full(param, start) for param, start in zip(params, self._offsets, strict=True)]
        self._positions = {id(full): position for position, full in enumerate(self._full)}
        self._has_value = [False] * len(self._full)  # whether `_full_grad` has the gradient of each parameter
        self._version_gathered: int | None = None
        self._is_in_backward = False
        self._expected = self._arrived = 0
        self._arrived_positions: set[int] = set()  # of parameters with gradients, since the last reduction
        self._reduction: tuple[Work | None, Tensor, Tensor] | None = None
        self._register(self.shards)

    # layout

    def _cut_shard(self, params: Sequence[Parameter]) -> Tensor:
        """Return this rank's part of the vector of all parameters."""
        first = params[0].meta
        begin = self.rank * self._shard_size
        shard = zeros(self._shard_size, dtype=first.dtype, device=first.device)
        with no_grad():
            for param, offset in zip(params, self._offsets, strict=True):
                low, high = max(begin, offset), min(begin + self._shard_size, offset + param.meta.numel)
                if low < high:
                    part = param.detach().reshape(-1)[low - offset : high - offset]
                    shard[low - begin : high - begin].copy_(part)
        return shard

    def _new_shard(self, param: Parameter, offset: int) -> ShardedParameter:
        begin = self.rank * self._shard_size
        low = min(max(begin, offset), offset + param.meta.numel)
        high = max(low, min(begin + self._shard_size, offset + param.meta.numel))
        part = view_of(self._shard_vector, max(low - begin, 0), (high - low,))
        if low == high:
            part = empty(0, dtype=param.meta.dtype, device=param.meta.device)
        shard = ShardedParameter(part, requires_grad=param.requires_grad)
        shard.full_shape, shard.full_start, shard.group = tuple(param.meta.shape), low - offset, self
        return shard

    def _new_full(self, param: Parameter, offset: int) -> Parameter:
        full = Parameter(view_of(self._full_vector, offset, param.meta.shape), requires_grad=param.requires_grad)
        if param.requires_grad:
            set_ready_hook(full, self._receive)
        return full

    def _register(self, params: Sequence[Parameter]) -> None:
        """Let the modules have these parameters."""
        for owners, param in zip(self._owners, params, strict=True):
            for module, name in owners:
                module._parameters[name] = param

    # gathered and sharded

    def unshard(self) -> None:
        """Gather the whole parameters, unless they are there, and let the modules have them."""
        version = self._shard_vector.storage.version
        if not self._memory.is_allocated or self._version_gathered != version:
            self._memory.allocate()
            storage = self._memory.storage
            values_version = storage.version
            dist.all_gather_into_tensor(self._full_vector, self._shard_vector, group=self._process_group)
            if self._version_gathered == version:
                storage.version = values_version  # the same values: tensors that were saved for backward are valid
            self._version_gathered = version
        self._register(self._full)

    def reshard(self) -> None:
        """Let the modules have this rank's parts, and release the whole parameters."""
        self._register(self.shards)
        self._memory.release()

    def finish_forward(self, has_backward: bool) -> None:
        """Reshard after forward, if that is wanted and no backward is running (a checkpoint computes forward anew)."""
        if self._is_in_backward:
            return
        if self.reshards_after_forward or not has_backward:
            self.reshard()
        else:
            self._register(self.shards)

    def keep_after_forward(self) -> None:
        """Let the modules have this rank's parts, and keep the whole parameters for backward."""
        if not self._is_in_backward:
            self._register(self.shards)

    # backward

    def drop_failed_backward(self) -> None:
        """Forget what a backward that has ended by an error has left. Call it at the start of forward."""
        if self._is_in_backward:
            self._is_in_backward = False
            self._arrived, self._reduction, self._full_grad = 0, None, None
            if _reducing.get(id(self._process_group)) is self:
                del _reducing[id(self._process_group)]

    def begin_backward(self) -> None:
        """Gather the parameters when the first gradient of an output arrives, before the module's own backward."""
        if self._is_in_backward:
            return
        self._is_in_backward = True
        self._arrived = 0
        self._arrived_positions.clear()
        self._expected = sum(param.needs_grad and is_reached(param) for param in self._full)
        queue_callback(self._finish_backward)
        self.unshard()

    def _receive(self, param: Tensor, grad: Tensor) -> None:
        """Take the complete gradient of a whole parameter."""
        # if no output's hook has done it: `_tensors_in` returned no tensor that requires a gradient
        self.begin_backward()
        if self._full_grad is None:
            self._full_grad, self._has_value = self._new_full_grad(), [False] * len(self._full)
        position = self._positions[id(param)]
        target = view_of(self._full_grad, self._offsets[position], param.meta.shape)
        if self._has_value[position]:
            call_into(registry["add"], (target, grad), (), (target,), in_place=True)
        else:
            self._has_value[position] = True
            call_into(registry["copy"], (grad,), (None,), (target,), in_place=True)
        self._arrived_positions.add(position)  # counts once if a reentrant checkpoint computes it in parts
        self._arrived = len(self._arrived_positions)
        if self._arrived == self._expected:
            self._reduce()

    def _new_full_grad(self) -> Tensor:
        """Return a vector for the whole gradients, with zeros as padding. `_reduce` fills what backward leaves out."""
        layout = self._full_vector.meta
        vector = empty(layout.numel, dtype=layout.dtype, device=layout.device)
        if self._count < layout.numel:
            vector[self._count :].zero_()
        return vector

    def _reduce(self) -> None:
        """Start to average the gradients, and release the whole parameters."""
        self._arrived = -1  # reduced: `_finish_backward` does not reduce again
        self._arrived_positions.clear()
        self.finish_reduction()  # gradients that arrive after a first reduction
        if self.syncs and self._full_grad is not None:
            for position, has_value in enumerate(self._has_value):
                if not has_value:  # frozen, not used, or its gradient is None
                    view_of(self._full_grad, self._offsets[position], self._full[position].meta.shape).zero_()
            layout = self._full_grad.meta
            shard_grad = empty(self._shard_size, dtype=layout.dtype, device=layout.device)
            work = dist.reduce_scatter_tensor(shard_grad, self._full_grad, group=self._process_group, async_op=True)
            self._reduction = work, shard_grad, self._full_grad
            self._full_grad = None
            _wait_for_previous(self)
        self.reshard()

    def _finish_backward(self) -> None:
        if self._arrived >= 0:
            self._reduce()
        self.finish_reduction()
        if _reducing.get(id(self._process_group)) is self:
            del _reducing[id(self._process_group)]
        self._is_in_backward = False

    def finish_reduction(self) -> None:
        """Wait for the reduction that is in progress, and add its result to the gradients of this rank's parts."""
        if self._reduction is None:
            return
        work, shard_grad, _ = self._reduction
        self._reduction = None
        if work is not None:
            work.wait()
        call_into(registry["mul"], (shard_grad, 1.0 / self.world_size), (), (shard_grad,), in_place=True)
        begin = self.rank * self._shard_size
        for shard, offset in zip(self.shards, self._offsets, strict=True):
            if not shard.needs_grad:
                continue
            if shard.meta.numel:
                part = view_of(shard_grad, offset + shard.full_start - begin, shard.meta.shape)
            else:
                part = shard.detach()  # so that the optimizer counts the step on all ranks
            if shard.grad is None:
                shard.grad = part
            else:
                call_into(registry["add"], (shard.grad, part), (), (shard.grad,), in_place=True)

    # whole values

    def gather_parameter(self, shard: ShardedParameter) -> Tensor:
        """Return a copy of a whole parameter. All ranks have to call it."""
        position = next(i for i, own in enumerate(self.shards) if own is shard)
        vector = empty(self._shard_size * self.world_size, dtype=shard.dtype, device=shard.device)
        dist.all_gather_into_tensor(vector, self._shard_vector, group=self._process_group)
        return view_of(vector, self._offsets[position], shard.full_shape).clone()


_reducing: dict[int, ShardedUnit] = {}  # by process group: the unit whose reduce-scatter is in progress


def _wait_for_previous(unit: ShardedUnit) -> None:
    """Finish the reduction of the previous unit, so that one vector of whole gradients waits at most."""
    key = id(unit._process_group)
    previous = _reducing.get(key)
    if previous is not None and previous is not unit:
        previous.finish_reduction()
    _reducing[key] = unit
