"""Memory for an optimizer's state, which a training loop allocates last, at the end of its first step.

From an optimizer's construction to the end of its first step, each memory pool with parameters is recorded. Then the
pool asks the driver once for all memory that the later steps will need (`runtime/rehearsal.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..runtime.context import current_stream
from ..runtime.rehearsal import Rehearsal, rehearse
from ..runtime.tensor import Tensor
from ._types import ParamGroup, ParamState

if TYPE_CHECKING:
    from ..runtime.blocks import Block
    from ..runtime.pool import Pool
    from .optimizer import Optimizer

__all__ = ["begin_rehearsals", "end_rehearsals", "reserve_state_memory"]


def begin_rehearsals(optimizer: Optimizer) -> tuple[Rehearsal, ...]:
    """Begin to record the memory pools that the optimizer's parameters use, and return the records."""
    return tuple(rehearse(pool, optimizer) for pool in _pools(optimizer))


def _pools(optimizer: Optimizer) -> list[Pool]:
    """Return the pools of the current streams of the parameters' devices, except where a graph is captured."""
    streams = [current_stream(d) for d in dict.fromkeys(p.meta.device for p in optimizer._all_params())]
    return [s.pool for s in streams if getattr(s, "capture", None) is None]


def reserve_state_memory(
    optimizer: Optimizer, group: ParamGroup, params: Sequence[Tensor], tensors_per_param: int | None = None
) -> None:
    """Reserve memory for the state that `params` will get.

    Args:
        optimizer: The optimizer.
        group: The group of the parameters.
        params: Parameters without state.
        tensors_per_param: Number of state tensors of the parameter's shape and dtype. None calls `init_state` once for
            the smallest parameter, and measures the tensors that it creates.
    """
    if not params:
        return
    smallest = min(params, key=lambda p: p.meta.numel)
    sample_state: ParamState = {}
    if tensors_per_param is None:
        optimizer.init_state(smallest, sample_state, group)
        samples = list(_iter_tensors(sample_state))
    else:
        samples = [smallest] * tensors_per_param
    tensor_sizes = [(t.meta.nbytes, t.meta.dtype.itemsize, t.meta.shape == smallest.meta.shape) for t in samples]
    for rehearsal in optimizer._rehearsals:
        pool_params = [p for p in params if current_stream(p.meta.device).pool is rehearsal.pool]
        rehearsal.provide(
            p.meta.numel * itemsize if has_param_shape else nbytes
            for p in pool_params
            for nbytes, itemsize, has_param_shape in tensor_sizes
        )


def end_rehearsals(optimizer: Optimizer) -> None:
    """After the first step, prepare the memory pools so that later steps need no allocation from the driver.

    A step that updates nothing, because no parameter has a gradient, does not count as the first one.
    """
    params = list(optimizer._all_params())
    grads = [p.extra.grad for p in params if p.extra is not None and p.extra.grad is not None]
    if not grads:
        return
    rehearsals, optimizer._rehearsals = optimizer._rehearsals, ()
    persistent_blocks = _blocks(params) + _blocks(_iter_tensors(optimizer.state))
    pools = _pools(optimizer)
    for rehearsal in rehearsals:
        if rehearsal.pool in pools:
            rehearsal.end_step(optimizer, persistent_blocks, _blocks(grads), optimizer._zeros_grads)
        else:
            rehearsal.leave(optimizer)


def _blocks(tensors: Iterable[Tensor]) -> list[Block]:
    """Return the pools' blocks that hold the tensors. Memory of another library is in no block."""
    return [t.storage.block for t in tensors if t.storage.block is not None]


def _iter_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _iter_tensors(element)
