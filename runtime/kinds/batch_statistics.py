"""Plan the statistics of a batch and the running statistics after it (`codegen/specs/normalization.yaml`).

The op launches the kernels of `moments`, `move_statistics` and `count_batch`. On Triton devices, one kernel of its own
takes the place of the last launch of `moments` and of the two others (`triton/batch_statistics.py`).
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, ShapeError
from ..records import registry
from . import Planned, Request, pointwise, reduction

__all__ = ["BUFFERS", "LAUNCHES", "NUMBERS", "plan"]

BUFFERS = ("input", "running_mean", "running_var", "batches", "mean", "rstd", "new_mean", "new_var", "new_batches",
           "variance")  # fmt: skip
"""The operands, the results, and the first scratch buffer, by position."""
NUMBERS = ("momentum", "rest", "unbiased", "eps")


def plan(request: Request) -> Planned:
    """Plan mean, reciprocal deviation, running mean, running variance and number of batches.

    Raises:
        ArgumentError: if an operand is no tensor.
        DTypeError: if the input is not floating or has 64 bits, or `batches` is not int64.
        ShapeError: if shapes do not fit, the input is empty, or another operand is not contiguous.
    """
    input, running_mean, running_var, batches = operands = request.operands[:4]
    if not (isinstance(input, Meta) and isinstance(running_mean, Meta) and isinstance(running_var, Meta)
            and isinstance(batches, Meta)):  # fmt: skip
        raise ArgumentError(f"{request.where()}: takes four tensors, not {operands}; make them with tensor()")
    if input.dtype.kind != "f" or input.dtype.itemsize > 4 or batches.dtype is not dtypes.int64:
        raise DTypeError(f"{request.where()}: takes a floating input of at most 32 bits, and batches of int64")
    if input.ndim < 2 or not input.numel:
        raise ShapeError(f"{request.where()}: takes an input (N, C, ...) that is not empty")
    channels = input.shape[1]
    shape = (1, channels, *(1,) * (input.ndim - 2))
    statistics = meta(dtypes.float32, shape, None, request.device)
    results = request.into or (statistics, statistics, running_mean, running_var, batches)
    stored = (running_mean, running_var, *results[2:4])
    if any(m.shape != (channels,) for m in stored) or any(m.numel != 1 for m in (batches, results[4])):
        raise ShapeError(f"{request.where()}: running statistics have shape ({channels},), and batches is one number")
    if not all(m.contiguous for m in (*stored, *results[:2])) or any(m.shape != shape for m in results[:2]):
        raise ShapeError(
            f"{request.where()}: results have shape {shape} and are contiguous, like the running statistics"
        )
    axes = tuple(d for d in range(input.ndim) if d != 1)
    moments = reduction.plan(
        Request(
            registry["moments"], (input, float), (axes, True, dtypes.float64), request.device,
            (results[0], statistics, results[1]),
        )
    )  # fmt: skip
    scratch = (statistics.nbytes, *moments.scratch)
    buffers = ("input", "mean", "variance", "rstd")
    steps = [_rename(step, buffers, ("eps",)) for step in moments.steps]
    return Planned(results, LAUNCHES[request.capabilities.style](request, results, steps), scratch)


def _rename(step: Step, buffers: tuple[str, ...], numbers: tuple[str, ...]) -> Step:
    """Return a launch of another op, whose operands and results are `buffers`, as one of this op."""
    positions = [BUFFERS.index(name) for name in buffers]
    first_scratch = len(BUFFERS)
    return replace(
        step,
        buffers=tuple(positions[b] if b < len(positions) else first_scratch + b - len(positions) for b in step.buffers),
        scalars=tuple(NUMBERS.index(numbers[n]) for n in step.scalars),
    )


def _opencl_steps(request: Request, results: tuple[Meta, ...], steps: list[Step]) -> tuple[Step, ...]:
    """Return the launches of `moments`, and append those of the pointwise ops."""
    device, (_, running_mean, running_var, batches) = request.device, request.operands[:4]
    statistics = meta(dtypes.float32, results[2].shape, None, device)
    operands = (running_mean, running_var, statistics, statistics, float, float, float)
    move = Request(registry["move_statistics"], operands, (), device, results[2:4])
    count = Request(registry["count_batch"], (batches,), (), device, results[4:])
    names = ("running_mean", "running_var", "mean", "variance", "new_mean", "new_var")
    return (
        *steps,
        *(_rename(s, names, NUMBERS[:3]) for s in pointwise.plan(move).steps),
        *(_rename(s, ("batches", "new_batches"), ()) for s in pointwise.plan(count).steps),
    )


def _triton_steps(request: Request, results: tuple[Meta, ...], steps: list[Step]) -> tuple[Step, ...]:
    """Build the launches for Triton."""
    from .triton.batch_statistics import join  # lazy: Triton devices only

    return join(request, results, steps)


LAUNCHES = ByStyle("batch statistics", cpu=_opencl_steps, gpu=_opencl_steps, triton=_triton_steps)
