"""`DistributedDataParallel`: the same module on every rank, with gradients averaged over the ranks during backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ... import distributed as dist
from ...autograd import is_grad_enabled, no_grad
from ...creation.factories import zeros
from ...creation.from_data import tensor
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ...runtime import dtypes
from ...runtime.device import Device, DeviceLike
from ...runtime.errors import ArgumentError, NotSupported
from ..module import Module
from .reducer import CommHook, Reducer
from .state_broadcast import broadcast_tensors, check_same_parameters

__all__ = ["DistributedDataParallel"]

_FIRST_BUCKET_BYTES = 1 << 20
_DEFAULT_BUCKET_MB = 25.0


class DistributedDataParallel(Module, Joinable):
    """A module of which each rank has a copy, for training on parts of the batch.

    Backward averages the gradients over the ranks, in buckets whose all-reduce runs while backward computes further
    gradients. If each rank's loss is a mean over equally many samples, the gradients are those of the whole batch, up
    to rounding. The same number of ranks gives the same bits. Each rank has its own optimizer, which computes the same
    step.

    Construct it on all ranks, after `init_process_group`. Paths of parameters begin with `module.`.

    Args:
        module: The module. Its parameters and buffers get the values of rank 0.
        device_ids: At most one device, for compatibility.
        output_device: Ignored: outputs are on the module's device.
        dim: Ignored.
        broadcast_buffers: At the start of each forward, copy the buffers of rank 0 to all ranks.
        init_sync: Check parameters and copy those of rank 0 at construction.
        process_group: The group; None for all ranks.
        bucket_cap_mb: A bucket is closed once it has this many MiB. None: 25, and 1 for the first bucket of each dtype
            and device.
        find_unused_parameters: Expect parameters that a backward does not reach. They keep their `grad` if no rank's
            backward reaches them.
        check_reduction: Ignored.
        gradient_as_bucket_view: Keep the buckets' memory for all steps: `grad` changes with the next backward.
            Otherwise every backward has new buckets.
        static_graph: Promise that every backward reaches the same parameters equally often; the first one shows which.
        delay_all_reduce_named_params, param_to_hook_all_reduce, mixed_precision, device_mesh,
            skip_all_reduce_unused_params: Only the default is supported.

    Raises:
        ArgumentError: There is no parameter that requires gradients, or `bucket_cap_mb` is negative.
        DistError: The ranks' parameters differ in number, shape or dtype.
        GradientError: From backward, if it does not reach a parameter, without `find_unused_parameters`.
        NotSupported: An option has a value that is not supported.
        TypeError: `module` is no module.
    """

    module: Module

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: object = None,
        param_to_hook_all_reduce: object = None,
        mixed_precision: object = None,
        device_mesh: object = None,
        skip_all_reduce_unused_params: bool = False,
    ):
        if not isinstance(module, Module):
            raise TypeError(f"DistributedDataParallel: expects a module, not {type(module).__name__}")
        super().__init__()
        Joinable.__init__(self)
        unsupported = {
            "delay_all_reduce_named_params": delay_all_reduce_named_params, "mixed_precision": mixed_precision,
            "param_to_hook_all_reduce": param_to_hook_all_reduce, "device_mesh": device_mesh,
            "skip_all_reduce_unused_params": skip_all_reduce_unused_params or None,
        }  # fmt: skip
        for name, value in unsupported.items():
            if value is not None:
                raise NotSupported(f"DistributedDataParallel: {name} is not supported")
        if device_ids is not None and len(device_ids) > 1:
            raise NotSupported("DistributedDataParallel: a module runs on one device; start a process for each device")
        if bucket_cap_mb is not None and bucket_cap_mb < 0:
            raise ArgumentError(f"DistributedDataParallel: bucket_cap_mb must not be negative, it is {bucket_cap_mb}")
        ignored: set[str] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored]
        if not named:
            raise ArgumentError(
                "DistributedDataParallel: the module has no parameter that requires gradients; call the module itself"
            )
        self.module = module
        self.dim = dim
        self.device_ids, self.output_device = device_ids, output_device
        self.process_group = process_group
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.require_backward_grad_sync = True
        self._ignored = ignored
        self._next_forward_syncs_buffers = broadcast_buffers
        self._divides_by_all = True
        self._any_rank_syncs = True
        if init_sync:
            check_same_parameters(named, process_group)
            state = [t for n, t in (*module.named_parameters(), *module.named_buffers()) if n not in ignored]
            broadcast_tensors(state, process_group)
        cap = _DEFAULT_BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb
        limit = int(cap * (1 << 20))
        self.reducer = Reducer(
            [name for name, _ in named],
            [param for _, param in named],
            process_group,
            first_limit=min(_FIRST_BUCKET_BYTES, limit) if bucket_cap_mb is None else limit,
            limit=limit,
            reuses_buffers=gradient_as_bucket_view,
            finds_unused=find_unused_parameters,
            is_static=static_graph,
        )
        self._device = named[0][1].meta.device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module.

        Args:
            *inputs: Arguments of the module.
            **kwargs: Named arguments of the module.

        Returns:
            Result of the module.
        """
        source = 0
        if is_grad_enabled():
            if self._join_config.enable:
                Join.notify_join_context(self)
                source = self._share_activity(2 if self.require_backward_grad_sync else 1)
            if self.require_backward_grad_sync:
                self.reducer.prepare()
            else:
                self.reducer.syncs = False
        if self._next_forward_syncs_buffers and self.training:
            self._sync_buffers(source)
        self._next_forward_syncs_buffers = (
            self.broadcast_buffers and self.require_backward_grad_sync and is_grad_enabled()
        )
        return self.module(*inputs, **kwargs)

    def _share_activity(self, activity: int) -> int:
        """Tell all ranks of a `Join` what this one does: 0: no batch, 1: a batch with `no_sync`, 2: a batch.

        Returns:
            The first rank with a batch, whose buffers are those of all ranks.
        """
        flags = zeros(self.reducer.world_size, dtype=dtypes.int32, device=self._device)
        flags[dist.get_rank(self.process_group)] = activity
        dist.all_reduce(flags, group=self.process_group)
        activities: list[int] = flags.tolist()
        active = [rank for rank, value in enumerate(activities) if value]
        self._any_rank_syncs = max(activities) == 2
        if not self._divides_by_all:
            self.reducer.divisor = len(active)
        return active[0]

    def _sync_buffers(self, source: int = 0) -> None:
        buffers = [buffer for name, buffer in self.module.named_buffers() if name not in self._ignored]
        if buffers:
            with no_grad():
                broadcast_tensors(buffers, self.process_group, source)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients on this rank only, for forward and backward inside of the context.

        The first backward after the context averages what was accumulated.
        """
        outer = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = outer

    def register_comm_hook(self, state: Any, hook: CommHook) -> None:
        """Let `hook(state, bucket)` average the gradients of each bucket.

        `weftgrad.distributed.algorithms.ddp_comm_hooks` has hooks that compress.

        Args:
            state: First argument of the hook.
            hook: Function that starts the reduction of a `GradBucket` and returns a `Future` of the average, a vector.
                The gradients in the bucket are not divided by the number of ranks.

        Raises:
            ArgumentError: A hook is registered already, or `hook` is not callable.
        """
        if not callable(hook):
            raise ArgumentError(f"register_comm_hook: takes a function, not {type(hook).__name__}")
        self.reducer.set_hook(state, hook)

    def _set_static_graph(self) -> None:
        self.static_graph = self.reducer.is_static = True

    # uneven inputs

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:
        """Return a context for ranks with different numbers of batches.

        Ranks that have no more batches take part in the collectives of the others, and at the end copy the module of a
        rank that had batches until the end.

        Args:
            divide_by_initial_world_size: Divide sums of gradients by the number of all ranks. False: by the number of
                those that have a batch.
            enable: False switches the context off.
            throw_on_early_termination: Raise an error on all ranks when one has no more batches.

        Returns:
            The context.
        """
        self._divides_by_all = divide_by_initial_world_size
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what ranks without batches do.

        Args:
            **kwargs: `divide_by_initial_world_size`, and options of other joinables.
        """
        self._divides_by_all = bool(kwargs.get("divide_by_initial_world_size", True))
        return _ShadowForward(self)

    @property
    def join_device(self) -> Device:
        """The device of the parameters."""
        return self._device

    @property
    def join_process_group(self) -> Any:
        """The process group."""
        return self.process_group


class _ShadowForward(JoinHook):
    """What a rank without batches does for a `DistributedDataParallel`."""

    def __init__(self, model: DistributedDataParallel):
        self._model = model

    def main_hook(self) -> None:
        """Take part in the collectives of a forward and a backward of the other ranks."""
        model = self._model
        source = model._share_activity(0)
        if model._any_rank_syncs:
            model.reducer.prepare()
        if model._next_forward_syncs_buffers and model.training:
            model._sync_buffers(source)
        model._next_forward_syncs_buffers = model.broadcast_buffers and model._any_rank_syncs
        if model._any_rank_syncs:
            model.reducer.reduce_zeros()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Copy parameters and buffers of a rank that had batches until the end."""
        model = self._model
        group = model.process_group
        rank = dist.get_rank(group) if is_last_joiner else -1
        source = tensor([rank], dtype=dtypes.int32, device=model._device)
        dist.all_reduce(source, op=dist.ReduceOp.MAX, group=group)
        with no_grad():
            state = [*model.module.parameters(), *model.module.buffers()]
            broadcast_tensors(state, group, int(source.item()))
        model.reducer.divisor = model.reducer.world_size
