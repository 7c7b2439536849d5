"""`Reducer` averages gradients over the ranks of a process group while backward computes.

The engine passes each parameter's gradient to the reducer as soon as it is complete (`runtime.autograd.ready_leaves`).
The reducer writes it into its bucket, divided by the number of ranks, and starts the all-reduce of a bucket when all
of its gradients are there. Buckets start in the same order on all ranks. When backward ends, the reducer waits for all
of them (Li et al. 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel Training, arXiv 2006.15704).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ... import distributed as dist
from ...creation.factories import zeros
from ...creation.from_data import tensor
from ...distributed.progress import paused_thread
from ...runtime import dtypes
from ...runtime.autograd.ready_leaves import is_reached, queue_callback, set_ready_hook
from ...runtime.dispatch import call, call_into
from ...runtime.errors import ArgumentError, GradientError
from ...runtime.records import registry
from ...runtime.tensor import Tensor
from .buckets import Bucket, GradBucket, assign_buckets

if TYPE_CHECKING:
    from ...distributed.process_group import ProcessGroup

__all__ = ["CommHook", "Reducer"]


class _Pending(Protocol):
    """A collective in progress, or the future of a hook."""

    def wait(self) -> Any: ...


CommHook: TypeAlias = Callable[[Any, GradBucket], _Pending]
"""`hook(state, bucket)` starts the reduction of a bucket, and returns a future of the vector of average gradients."""

_add, _copy, _mul, _fill = (registry[name] for name in ("add", "copy", "mul", "fill"))


def _write_scaled(target: Tensor, source: Tensor, factor: float) -> None:
    """Write `source * factor` to `target`, which may be `source`."""
    if factor != 1.0:
        call_into(_mul, (source, factor), (), (target,), in_place=source is target)
    elif source is not target:
        call_into(_copy, (source,), (None,), (target,), in_place=True)


class Reducer:
    """Averages the gradients of parameters over the ranks of a group, bucket by bucket, during backward.

    Args:
        names: The parameters' paths, for messages.
        params: Parameters that require gradients, the same on all ranks.
        group: The process group.
        first_limit: Bytes of the first bucket.
        limit: Bytes of each other bucket.
        reuses_buffers: Keep the buckets' memory for all steps: `grad` changes with the next backward. Otherwise every
            backward has new buckets.
        finds_unused: Expect parameters that a backward does not reach.
        is_static: The first backward shows which parameters every backward reaches, and how often.

    Attributes:
        syncs: Whether the next backward averages gradients. Without, it accumulates them on this rank only.
        buckets: The buckets, in the order in which they are reduced.
    """

    def __init__(
        self,
        names: Sequence[str],
        params: Sequence[Tensor],
        group: ProcessGroup | None,
        *,
        first_limit: int,
        limit: int,
        reuses_buffers: bool,
        finds_unused: bool,
        is_static: bool,
    ):
        self._names, self._params, self._group = list(names), list(params), group
        self._first_limit, self._limit = first_limit, limit
        self._reuses_buffers, self._finds_unused = reuses_buffers, finds_unused
        self.is_static = is_static
        self.world_size: int = dist.get_world_size(group)
        self.divisor = self.world_size
        self.syncs = True
        self._hook: CommHook | None = None
        self._hook_state: Any = None
        self._is_in_backward = False
        self._is_rebuilt = False
        self._order: list[int] = []  # numbers of parameters as their gradients arrived in the first backward
        # for each parameter, with `is_static` after the first backward
        self._expected_arrivals: list[int] | None = None
        self._static_counts: list[int] | None = None  # ranks that use each parameter, with `is_static`
        self._arrival_counts = [0] * len(params)
        self._works: list[_Pending] = []
        self._unreached: set[int] = set()  # parameters that the current backward reduces as zeros
        self._used_locally: set[int] = set()  # parameters with a gradient that no rank has averaged yet
        self._build(range(len(params) - 1, -1, -1))
        hooks = [_ParameterHook(self, index) for index in range(len(params))]
        for param, hook in zip(self._params, hooks, strict=True):
            set_ready_hook(param, hook)
        # Without the reducer, backward accumulates gradients as usual, on this rank alone.
        weakref.finalize(self, _remove_hooks, self._params, hooks).atexit = False

    def _build(self, order: Sequence[int]) -> None:
        """Divide the parameters between buckets in this order of their gradients."""
        numbers = assign_buckets(self._params, order, self._first_limit, self._limit)
        self.buckets = [Bucket(indices, [self._params[i] for i in indices]) for indices in numbers]
        self._slots = {i: (b, s) for b, indices in enumerate(numbers) for s, i in enumerate(indices)}

    def set_hook(self, state: Any, hook: CommHook) -> None:
        """Let `hook(state, bucket)` reduce the buckets.

        Raises:
            ArgumentError: There is a hook already.
        """
        if self._hook is not None:
            raise ArgumentError("register_comm_hook: there is a communication hook already; register it once only")
        self._hook, self._hook_state = hook, state

    # between backwards

    def prepare(self) -> None:
        """Get ready for a backward that averages gradients. Call it at the start of forward."""
        self.syncs = True
        self._is_in_backward = False
        if self._order and not self._is_rebuilt and not (self._finds_unused and not self.is_static):
            self._rebuild()

    def _rebuild(self) -> None:
        """Build the buckets anew, in the order in which gradients arrived on rank 0."""
        self._is_rebuilt = True
        missing = sorted(set(range(len(self._params))) - set(self._order), reverse=True)
        order = tensor([*self._order, *missing], dtype=dtypes.int64, device=self._params[0].meta.device)
        dist.broadcast(order, dist.get_global_rank(self._group, 0) if self._group is not None else 0, self._group)
        self._build([int(index) for index in order.tolist()])

    # during backward

    def _receive(self, index: int, param: Tensor, grad: Tensor) -> None:
        """Take the complete gradient of a parameter."""
        if not self.syncs:
            self._accumulate(index, param, grad)
            return
        if not self._is_in_backward:
            self._begin()
        if index in self._unreached:
            raise GradientError(
                f"DistributedDataParallel: the gradient of {self._names[index]} arrives after the ranks have reduced "
                "it as zeros, because this backward's graph did not contain it: a function that runs backward in its "
                "own backward computes it. Use checkpoint(..., use_reentrant=False), or let every backward reach the "
                "same parameters"
            )
        self._arrival_counts[index] += 1
        self._order_append(index)
        if self._expected_arrivals is None and not self.is_static and self._arrival_counts[index] > 1:
            raise GradientError(
                f"DistributedDataParallel: the gradient of {self._names[index]} arrived twice in one backward: "
                "a reentrant checkpoint computes it in two parts. Pass static_graph=True, or use "
                "checkpoint(..., use_reentrant=False)"
            )
        self._write(index, param, grad)
        if self.is_static and self._expected_arrivals is None:
            return  # the first backward: `_finish` starts all buckets
        if self._expected_arrivals is None or self._arrival_counts[index] == self._expected_arrivals[index]:
            self._mark_ready(index)

    def _order_append(self, index: int) -> None:
        if not self._is_rebuilt and self._arrival_counts[index] == 1 and len(self._order) < len(self._params):
            self._order.append(index)

    def _begin(self) -> None:
        self._is_in_backward = True
        self._next_bucket, self._works = 0, []
        self._arrival_counts = [0] * len(self._params)
        self._is_used = [True] * len(self._params)
        self._unreached.clear()
        for bucket in self.buckets:
            bucket.pending = len(bucket.params)
            if not self._reuses_buffers:
                bucket.drop_buffer()
        if not self._is_rebuilt:
            self._order = []
        queue_callback(self._finish)
        if self._expected_arrivals is not None:
            for index, count in enumerate(self._expected_arrivals):
                if not count:
                    self._mark_unused(index)
        elif self._finds_unused and not self.is_static:
            for index, param in enumerate(self._params):
                if not is_reached(param):
                    self._mark_unused(index)

    def _mark_unused(self, index: int) -> None:
        self._unreached.add(index)
        self._is_used[index] = index in self._used_locally
        self._write_without_gradient(index)
        self._mark_ready(index)

    def _view(self, index: int) -> Tensor:
        """Return the tensor over the gradient of a parameter in its bucket."""
        position, slot = self._slots[index]
        bucket = self.buckets[position]
        if bucket.buffer is None:
            bucket.allocate()
        return bucket.views[slot]

    @property
    def _factor(self) -> float:
        """The factor of gradients that enter a bucket. 1 with a communication hook, which divides by itself."""
        return 1.0 if self._hook is not None else 1.0 / self.divisor

    def _write(self, index: int, param: Tensor, grad: Tensor) -> None:
        """Write the sum of a gradient and of what is in `param.grad` to the bucket."""
        view, extra = self._view(index), param.ensure_extra()
        if extra.grad is not None:
            total = view if _is_same_memory(extra.grad, view) else extra.grad
            if self._arrival_counts[index] > 1 and total is view:  # the earlier part was multiplied already
                self._add_scaled(view, grad)
                return
            call_into(_add, (total, grad), (), (total,), in_place=True)
            _write_scaled(view, total, self._factor)
        elif self._arrival_counts[index] > 1:
            self._add_scaled(view, grad)
        else:
            _write_scaled(view, grad, self._factor)

    def _add_scaled(self, view: Tensor, grad: Tensor) -> None:
        part = grad if self._factor == 1.0 else call(_mul, (grad, self._factor))
        call_into(_add, (view, part), (), (view,), in_place=True)

    def _write_without_gradient(self, index: int) -> None:
        view, extra = self._view(index), self._params[index].ensure_extra()
        if extra.grad is None:
            call_into(_fill, (view, 0.0), (), (view,), in_place=True)
        else:
            _write_scaled(view, view if _is_same_memory(extra.grad, view) else extra.grad, self._factor)

    def _accumulate(self, index: int, param: Tensor, grad: Tensor) -> None:
        """Add a gradient to `param.grad` on this rank only."""
        self._used_locally.add(index)
        extra = param.ensure_extra()
        if extra.grad is not None:
            call_into(_add, (extra.grad, grad), (), (extra.grad,), in_place=True)
        elif self._reuses_buffers:
            extra.grad = self._view(index)
            _write_scaled(extra.grad, grad, 1.0)
        else:
            extra.grad = call(_copy, (grad,), (None,))

    def _mark_ready(self, index: int) -> None:
        bucket = self.buckets[self._slots[index][0]]
        bucket.pending -= 1
        while self._next_bucket < len(self.buckets) and not self.buckets[self._next_bucket].pending:
            self._works.append(self.start(self._next_bucket))
            self._next_bucket += 1

    def start(self, position: int) -> _Pending:
        """Start the reduction of a bucket."""
        bucket = self.buckets[position]
        if self._hook is not None:
            return self._hook(self._hook_state, GradBucket(bucket, position, len(self.buckets)))
        assert bucket.buffer is not None
        work = dist.all_reduce(bucket.buffer, group=self._group, async_op=True)
        assert work is not None
        return work

    # at the end of backward

    def _finish(self) -> None:
        """Wait for all buckets, and store the averages as the parameters' gradients."""
        if self.is_static and self._expected_arrivals is None:
            self._expected_arrivals = list(self._arrival_counts)
            for index, count in enumerate(self._arrival_counts):
                if not count:
                    self._mark_unused(index)
                else:
                    self._mark_ready(index)
        elif self._finds_unused and not self.is_static:
            for index, count in enumerate(self._arrival_counts):
                if not count and index not in self._unreached:  # the graph contains it, and its gradient is None
                    self._mark_unused(index)
        self._is_in_backward = False
        unused = [name for name, count in zip(self._names, self._arrival_counts, strict=True) if not count]
        if len(self._works) == len(self.buckets):
            unused = []  # those that are not used were expected
        if unused:
            raise GradientError(
                f"DistributedDataParallel: backward computed no gradient of {', '.join(unused[:8])}"
                f"{' and others' if len(unused) > 8 else ''}, so the ranks cannot average it; let every parameter take "
                "part in the loss, or pass find_unused_parameters=True"
            )
        with paused_thread():
            for bucket, work in zip(self.buckets, self._works, strict=True):
                self._store(bucket, work.wait())
        self._works = []
        if self._finds_unused or self._expected_arrivals is not None:
            self._store_used_gradients()
        else:
            for bucket in self.buckets:
                for param, view in zip(bucket.params, bucket.views, strict=True):
                    self._set_grad(param, view)
        self._used_locally.clear()
        for bucket in self.buckets:
            if not self._reuses_buffers:
                bucket.drop_buffer()

    def _store(self, bucket: Bucket, result: Any) -> None:
        """Copy the result of a hook to the bucket, unless it is there. The built-in reduction works in place."""
        if self._hook is None:
            return
        result = result[0] if isinstance(result, (list, tuple)) else result
        assert bucket.buffer is not None
        if not isinstance(result, Tensor):
            raise ArgumentError(
                f"the future of a communication hook has a tensor of the average gradients, not {type(result).__name__}"
            )
        if not _is_same_memory(result, bucket.buffer):
            call_into(_copy, (result.reshape(-1),), (None,), (bucket.buffer,), in_place=True)

    def _set_grad(self, param: Tensor, view: Tensor) -> None:
        extra = param.ensure_extra()
        if extra.grad is None or self._reuses_buffers:
            extra.grad = view
        else:
            call_into(_copy, (view,), (None,), (extra.grad,), in_place=True)

    def _store_used_gradients(self) -> None:
        """Store the gradients of parameters that some rank has used; leave `grad` of the others as it is."""
        counts = self._static_counts or self._count_uses(self._is_used)
        if self.is_static:
            self._static_counts = counts
        for bucket in self.buckets:
            for index, param, view in zip(bucket.indices, bucket.params, bucket.views, strict=True):
                if counts[index]:
                    self._set_grad(param, view)

    def _count_uses(self, is_used: Sequence[bool]) -> list[int]:
        """Return for each parameter how many ranks use it."""
        counts = tensor([int(flag) for flag in is_used], dtype=dtypes.int32, device=self._params[0].meta.device)
        dist.all_reduce(counts, group=self._group)
        uses: list[int] = counts.tolist()
        return uses

    # of ranks that have no more batches

    def reduce_zeros(self) -> None:
        """Take part in the reductions of a backward of the other ranks, with gradients of zeros."""
        works = []
        for position, bucket in enumerate(self.buckets):
            layout = bucket.params[0].meta
            count = sum(param.meta.numel for param in bucket.params)
            bucket.set_buffer(zeros(count, dtype=layout.dtype, device=layout.device))
            works.append(self.start(position))
        for bucket, work in zip(self.buckets, works, strict=True):
            self._store(bucket, work.wait())
            for param, view in zip(bucket.params, bucket.views, strict=True):
                self._set_grad(param, view)  # an optimizer sharded over the ranks still updates this rank's share
        if (self._finds_unused or self.is_static) and self._static_counts is None:
            counts = self._count_uses([False] * len(self._params))
            if self.is_static:
                self._static_counts = counts
        if not self._order:  # so that `prepare` rebuilds the buckets here, too: that is a collective
            self._order = list(range(len(self._params)))


class _ParameterHook:
    """Passes the gradients of a parameter to its reducer, which it does not keep alive."""

    __slots__ = ("_index", "_reducer")

    def __init__(self, reducer: Reducer, index: int):
        self._reducer = weakref.ref(reducer)
        self._index = index

    def __call__(self, param: Tensor, grad: Tensor) -> None:
        reducer = self._reducer()
        assert reducer is not None, "the hooks of a reducer are removed with it"
        reducer._receive(self._index, param, grad)


def _remove_hooks(params: Sequence[Tensor], hooks: Sequence[_ParameterHook]) -> None:
    """Remove hooks from parameters, unless others have replaced them."""
    for param, hook in zip(params, hooks, strict=True):
        if param.extra is not None and param.extra.ready_hook is hook:
            set_ready_hook(param, None)


def _is_same_memory(a: Tensor, b: Tensor) -> bool:
    return a.storage is b.storage and a.start == b.start and a.meta.numel == b.meta.numel
