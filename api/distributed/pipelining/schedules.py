"""Schedules of a pipeline: in which order a stage computes forward and backward of the microbatches.

`ScheduleGPipe` computes all forwards, then all backwards (Huang et al. 2018, arXiv 1811.06965). `Schedule1F1B`
alternates as soon as the pipeline is full, so that a stage stores activations of one microbatch more than stages
follow it, not of all (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). Both are idle for
(stages - 1) / microbatches of the time that they compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor
from ...shape.joining import cat
from .stage import PipelineStage

__all__ = ["Schedule1F1B", "ScheduleGPipe"]


class _Schedule:
    """Base class: microbatches, and one forward or backward of a stage.

    Args:
        stage: This rank's stage.
        n_microbatches: Number of equal parts of a batch.
        loss_fn: `loss_fn(output, target)`, a mean over the samples; needed for backward, and called on the last stage.
        scale_grads: Divide gradients by the number of microbatches, so that they are those of the mean over the batch.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[[Any, Any], Tensor] | None = None,
        scale_grads: bool = True,
    ):
        if not isinstance(stage, PipelineStage):
            raise TypeError(f"{type(self).__name__}: expects a PipelineStage, not {type(stage).__name__}")
        if n_microbatches < 1:
            raise ArgumentError(f"{type(self).__name__}: n_microbatches must be positive, not {n_microbatches}")
        self._stage, self._count, self._loss_fn = stage, n_microbatches, loss_fn
        self._factor = 1.0 / n_microbatches if scale_grads else 1.0

    def step(self, *args: Tensor, target: Tensor | None = None, losses: list[Tensor] | None = None) -> Tensor | None:
        """Compute forward and backward of a batch. Call it on all ranks.

        Args:
            *args: The batch, on the first stage.
            target: The targets, on the last stage.
            losses: On the last stage, gets the loss of each microbatch.

        Returns:
            The model's output of the batch on the last stage; None on the others.

        Raises:
            ArgumentError: The batch or the targets are missing on the stage that needs them.
            ShapeError: The batch size is not a multiple of the number of microbatches.
        """
        stage = self._stage
        if stage.is_first and len(args) != 1:
            raise ArgumentError(f"{type(self).__name__}.step: the first stage takes the batch, one tensor")
        needs_target = stage.is_last and self._loss_fn is not None
        if needs_target and target is None:
            raise ArgumentError(f"{type(self).__name__}.step: the last stage takes target=")
        self._inputs = deque(self._split(args[0]) if stage.is_first else [])
        self._targets = deque(self._split(target) if needs_target and target is not None else [])
        self._in_flight: deque[tuple[Tensor, Tensor]] = deque()
        self._outputs: list[Tensor] = []
        self._losses: list[Tensor] = []
        self._run()
        stage.finish()
        if losses is not None:
            losses[:] = self._losses
        return cat(self._outputs) if stage.is_last else None

    def _run(self) -> None:
        raise NotImplementedError

    def _split(self, batch: Tensor) -> list[Tensor]:
        size, rest = divmod(batch.shape[0], self._count)
        if rest:
            raise ShapeError(
                f"{type(self).__name__}: a batch of {batch.shape[0]} samples does not divide into {self._count} "
                "microbatches"
            )
        return [batch[i * size : (i + 1) * size] for i in range(self._count)]

    def _forward(self) -> None:
        """Compute the forward of the next microbatch, and send its output."""
        stage = self._stage
        value = self._inputs.popleft() if stage.is_first else stage.receive_input()
        output: Tensor = stage.submod(value)
        if not stage.is_last:
            stage.send_output(output)
            result = output
        else:
            self._outputs.append(output.detach())
            result = output
            if self._loss_fn is not None:
                result = self._loss_fn(output, self._targets.popleft())
                self._losses.append(result.detach())
        if self._loss_fn is not None:
            self._in_flight.append((value, result))

    def _backward(self) -> None:
        """Compute the backward of the oldest microbatch in flight, and send the gradient of its input."""
        if self._loss_fn is None:
            return
        stage = self._stage
        value, result = self._in_flight.popleft()
        if stage.is_last:
            (result * self._factor).backward()
        else:
            result.backward(stage.receive_gradient(result))
        if not stage.is_first:
            stage.send_gradient(value)


class ScheduleGPipe(_Schedule):
    """All forwards, then all backwards. `loss_fn` has to be set on all stages, or on none for forward only."""

    def _run(self) -> None:
        for _ in range(self._count):
            self._forward()
        for _ in range(self._count):
            self._backward()


class Schedule1F1B(_Schedule):
    """One forward, one backward, once the pipeline is full. `loss_fn` has to be set on all stages, or on none."""

    def _run(self) -> None:
        stage = self._stage
        warmup = min(self._count, stage.num_stages - stage.stage_index - 1)
        for _ in range(warmup):
            self._forward()
        for _ in range(self._count - warmup):
            self._forward()
            self._backward()
        for _ in range(warmup):
            self._backward()
