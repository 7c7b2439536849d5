"""Plan group norm (`codegen/specs/normalization.yaml`).

On CPUs with float64, one kernel sums a group in float64 and normalizes it while it is cached, if there is a group for
every core and a channel fills a vector. All other calls launch the kernels of the ops `moments` (without float64:
`mean` and `deviation`) and `standardize`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from . import Planned, Request, pointwise, reduction, slot
from .elementwise import elementwise_parts

__all__ = ["plan"]

_OUTPUT, _MEAN, _RSTD, _SCRATCH = range(3, 7)  # positions of buffers; the operands are 0 to 2
_COST = 4  # work of one element, in units of `Step.work`


def plan(request: Request) -> Planned:
    """Plan the normalized input, mean and reciprocal deviation: their layouts, launches and scratch.

    Raises:
        ArgumentError: if an operand is no tensor, or the call has `out=`.
        DTypeError: if an operand is not floating or has 64 bits.
        ShapeError: if shapes do not fit, or an operand is not contiguous.
    """
    input, weight, bias = request.operands[:3]
    if not (isinstance(input, Meta) and isinstance(weight, Meta) and isinstance(bias, Meta)):
        raise ArgumentError(f"{request.where()}: takes three tensors; make them with tensor()")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    groups = request.static("groups")
    assert isinstance(groups, int)
    if any(m.dtype.kind != "f" or m.dtype.itemsize > 4 for m in (input, weight, bias)):
        raise DTypeError(f"{request.where()}: takes floating dtypes of at most 32 bits; convert with .float()")
    if not (input.contiguous and weight.contiguous and bias.contiguous):
        raise ShapeError(f"{request.where()}: the operands must be contiguous; call contiguous()")
    fits = input.ndim >= 2 and groups >= 1 and not input.shape[1] % groups
    if not fits or weight.shape != input.shape[1:2] or bias.shape != input.shape[1:2]:
        raise ShapeError(
            f"{request.where()}: takes (N, C, ...), a weight and a bias of shape (C,), and a divisor of C, not {groups}"
        )
    output = meta(input.dtype, input.shape, None, request.device)
    statistics = meta(dtypes.float32, (input.shape[0], groups), None, request.device)
    results = (output, statistics, statistics)
    if not input.numel:
        return Planned(results)
    caps, rows, positions = request.capabilities, statistics.numel, prod(input.shape[2:])
    lanes = caps.lanes
    if not (caps.takes_runs and caps.fp64 and lanes >= 4 and positions >= lanes and rows >= caps.cores):
        return _plan_by_ops(request, (input, weight, bias), results, groups, positions)
    work = input.numel * _COST
    chunk, items = split(rows, elementwise_parts(work, caps.cores))
    geometry = pack_longs((rows, groups, input.shape[1] // groups, positions, chunk))
    slots = tuple(slot(m, "value") for m in (input, weight, bias, *results))
    kernel = Instance(request.record.name, request.text.source, "group_norm", "float", lanes, slots, (), ("sqrt",))
    buffers = (0, 1, 2, _OUTPUT, _MEAN, _RSTD)
    return Planned(results, (Step(kernel, buffers, geometry, (items,), (1,), work, (0,)),))


def _plan_by_ops(
    request: Request, operands: tuple[Meta, Meta, Meta], results: tuple[Meta, ...], groups: int, positions: int
) -> Planned:
    """Plan the launches of other ops; the statistics keep size 1 in the dimensions of a group."""
    device, input = request.device, operands[0]
    samples, channels = input.shape[0], input.shape[1] // groups
    grouped = meta(input.dtype, (samples, groups, channels, positions), None, device)
    weight, bias = (meta(m.dtype, (1, groups, channels, 1), None, device) for m in operands[1:])
    statistics = meta(dtypes.float32, (samples, groups, 1, 1), None, device)
    axes, eps = (2, 3), float

    scratch = [statistics.nbytes]  # the variance
    variance = _SCRATCH

    def steps_of(planned: Planned, buffers: tuple[int, ...]) -> list[Step]:
        """Return the launches of an op whose operands and results are `buffers`, and reserve its scratch memory."""
        first = _SCRATCH + len(scratch)
        buffers = (*buffers, *range(first, first + len(planned.scratch)))
        scratch.extend(planned.scratch)
        return [replace(s, buffers=tuple(buffers[b] for b in s.buffers)) for s in planned.steps]

    if request.capabilities.fp64:
        moments = Request(registry["moments"], (grouped, eps), (axes, True, dtypes.float64), device)
        steps = steps_of(reduction.plan(moments), (0, _MEAN, variance, _RSTD))
    else:
        mean = Request(registry["mean"], (grouped,), (axes, True, dtypes.float32), device)
        steps = steps_of(reduction.plan(mean), (0, _MEAN))
        deviation = Request(registry["deviation"], (grouped, statistics, eps), (axes, True), device)
        steps += steps_of(reduction.plan(deviation), (0, _MEAN, variance, _RSTD))
    standardize = Request(registry["standardize"], (grouped, statistics, statistics, weight, bias), (), device)
    steps += steps_of(pointwise.plan(standardize), (0, _MEAN, _RSTD, 1, 2, _OUTPUT))
    return Planned(results, tuple(steps), tuple(scratch))
