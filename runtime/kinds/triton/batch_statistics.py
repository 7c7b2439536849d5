"""Plan the statistics of a batch and the running statistics after it for Triton."""

from __future__ import annotations

from ...backends.protocol import Slot, Step
from ...device import Meta
from .. import Request, slot
from . import Defines, Geometry, index_type, instance, next_power

__all__ = ["join"]

_ROLES = ("value", "value", "index")  # of running mean, running variance and the number of batches
_OPERANDS, _RESULTS, _NEW = (1, 2, 3), (4, 5), (6, 7, 8)  # positions of buffers, see `batch_statistics.BUFFERS`
_VARIANCE, _MEAN = 9, 4
_CONSTANTS = ("INDEX", "RESULTS", "BLOCK", "num_warps")  # of the last launch of `moments` that `finish` has, too


def join(request: Request, results: tuple[Meta, ...], steps: list[Step]) -> tuple[Step, ...]:
    """Return the launches of `moments`, of which the last one also updates the running statistics.

    If `moments` has one launch, which stores mean and variance, another one follows it.

    Args:
        request: The call.
        results: The layouts of the results.
        steps: The launches of `moments`.
    """
    operands = tuple(m for _, m in request.tensors)[1:]
    stored = tuple(slot(m, role) for m, role in zip((*operands, *results[2:]), _ROLES * 2, strict=True))
    *first, last = steps
    channels = results[2].numel
    element = last.instance.element
    if first:
        states, statistics = last.instance.slots[:2], tuple(slot(m, "value") for m in results[:2])
        _, count, splits, *_ = last.geometry
        assert isinstance(count, int)
        assert isinstance(splits, int)
        defines = dict(last.instance.defines)
        constants: Defines = {name: defines[name] for name in _CONSTANTS if name in defines}
        slots: tuple[Slot, ...] = (*states, *stored[:3], *statistics, *stored[3:])
        kernel = instance(request, "finish", element, slots, constants)
        geometry: Geometry = (channels, count, splits)
        buffers = (*last.buffers[:2], *_OPERANDS, *_RESULTS, *_NEW)
        return (*first, Step(kernel, buffers, geometry, last.global_size, None, last.work, (0, 1, 2, 3)))
    block = min(next_power(channels), request.capabilities.block)
    statistic = Slot("float32", "value")
    kernel = instance(
        request, "move", element, (statistic, statistic, *stored), {"INDEX": index_type([channels * 2]), "BLOCK": block}
    )
    buffers = (_MEAN, _VARIANCE, *_OPERANDS, *_NEW)
    return (last, Step(kernel, buffers, (channels,), (-(-channels // block),), None, channels, (0, 1, 2)))
