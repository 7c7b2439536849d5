"""Plans of parallel training, and what each pipeline stage of a plan computes, holds and sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ...runtime.errors import ArgumentError
from .timeline import ROLES, Gradient, Layer, Timeline

__all__ = ["SHARDINGS", "Plan", "Stage", "stages"]

SHARDINGS = ("ddp", "zero1", "zero2", "zero3")
"""What data-parallel ranks divide: nothing; optimizer state; gradients too; parameters too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a training is divided among devices.

    Devices are `tensor` times `pipeline` times the number of replicas, which the data is divided among. Ranks of a
    tensor group are neighbours, so that they are in one node where it has enough devices; then come the replicas, then
    the pipeline's stages.

    Args:
        sharding: One of `SHARDINGS`. `ddp` all-reduces gradients by buckets, `zero1` too, and gathers the updated
            parameters, as PyTorch's `ZeroRedundancyOptimizer` does. `zero2` reduce-scatters gradients. `zero3` also
            gathers the parameters of each unit before its forward and its backward, one unit ahead (S. Rajbhandari
            et al., "ZeRO: memory optimizations toward training trillion parameter models", 2020).
        tensor: Ranks that share each matrix, by Megatron's scheme: an all-reduce after each pair of matrices.
        pipeline: Stages, under the schedule 1F1B (D. Narayanan et al., "PipeDream", 2019). Only with `ddp` and `zero1`.
        microbatches: Batches that each replica accumulates in a step. The recorded step has one.
        bucket_bytes: Bytes of gradients in a bucket; under `zero3`, bytes of parameters in a unit.
        first_bucket_bytes: Bytes of the first bucket, which is small so that communication begins early.
        overlap: Whether communication of data-parallel ranks runs beside the computation.
        sequence_parallel: Whether tensor ranks also divide the layers between matrices, along the sequence.

    Raises:
        ArgumentError: A number is below 1, the sharding is unknown, or a pipeline is combined with `zero2` or `zero3`.

    Example:
        >>> from weftgrad.distributed.simulate import Plan
        >>> str(Plan(tensor=8, pipeline=4, microbatches=16))
        'ddp, tensor 8, pipeline 4, 16 microbatches'
    """

    sharding: str = "ddp"
    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 1
    bucket_bytes: int = 25 << 20
    first_bucket_bytes: int = 1 << 20
    overlap: bool = True
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        if self.sharding not in SHARDINGS:
            raise ArgumentError(f"Plan: sharding is one of {', '.join(SHARDINGS)}, not {self.sharding!r}")
        numbers = (self.tensor, self.pipeline, self.microbatches, self.bucket_bytes, self.first_bucket_bytes)
        if min(numbers) < 1:
            raise ArgumentError(f"Plan: numbers of ranks, microbatches and bytes are 1 or more, not {min(numbers)}")
        if self.pipeline > 1 and self.sharding in ("zero2", "zero3"):
            raise ArgumentError(
                f"Plan: {self.sharding} would communicate for every microbatch of a pipeline; combine pipelines with "
                "ddp or zero1"
            )

    def __str__(self) -> str:
        parts = [self.sharding]
        parts += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        parts += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        parts += [f"{self.microbatches} microbatches"] if self.microbatches > 1 else []
        parts += [] if self.overlap else ["no overlap"]
        return ", ".join(parts)

    @property
    def model_ranks(self) -> int:
        """Devices that hold one replica of the model."""
        return self.tensor * self.pipeline

    def replicas(self, devices: int) -> int:
        """Return the number of replicas on a number of devices.

        Args:
            devices: Number of devices.

        Returns:
            Number of replicas.

        Raises:
            ArgumentError: The devices cannot be divided into replicas.
        """
        if devices < 1 or devices % self.model_ranks:
            raise ArgumentError(
                f"Plan: {self} needs a multiple of {self.model_ranks} devices (tensor × pipeline), not {devices}"
            )
        return devices // self.model_ranks


@dataclass(frozen=True)
class Stage:
    """The layers of one pipeline stage, divided among the ranks of a tensor group.

    Args:
        timeline: The recorded step.
        plan: The plan.
        first: Index of its first layer.
        last: Index behind its last layer.
    """

    timeline: Timeline
    plan: Plan
    first: int
    last: int

    @property
    def layers(self) -> Sequence[Layer]:
        """Layers in the order of forward."""
        return self.timeline.layers[self.first : self.last]

    @cached_property
    def gradients(self) -> Sequence[Gradient]:
        """Gradients of its layers in the order in which they arrive."""
        return [gradient for gradient in self.timeline.gradients if self.first <= gradient.layer < self.last]

    def compute_share(self, index: int) -> float:
        """Return the part of a layer's computation that one rank does."""
        is_divided = self.timeline.layers[index].role != "replicated" or self.plan.sequence_parallel
        return 1 / self.plan.tensor if is_divided else 1.0

    def parameter_share(self, index: int) -> float:
        """Return the part of a layer's parameters that one rank has."""
        return 1.0 if self.timeline.layers[index].role == "replicated" else 1 / self.plan.tensor

    def parameter_bytes(self, indices: Sequence[int] | None = None) -> float:
        """Return the bytes of parameters of a rank, of some layers or of all."""
        return sum(
            self.timeline.layers[index].parameter_bytes * self.parameter_share(index)
            for index in (range(self.first, self.last) if indices is None else indices)
        )

    @property
    def gradient_bytes(self) -> float:
        """Bytes of gradients of a rank."""
        return sum(gradient.nbytes * self.parameter_share(gradient.layer) for gradient in self.gradients)

    @property
    def activation_bytes(self) -> float:
        """Bytes of activations of one microbatch on a rank."""
        divided = {"column"} if not self.plan.sequence_parallel else {*ROLES}
        return sum(layer.activation_bytes / (self.plan.tensor if layer.role in divided else 1) for layer in self.layers)

    def forward_collective_bytes(self, index: int) -> int:
        """Return the bytes that the tensor group all-reduces after the forward pass of a layer; 0 for none.

        A matrix split by columns with no other one behind it, such as the last one of a classifier, has its outputs
        gathered, which is counted as an all-reduce.
        """
        layers = self.timeline.layers
        if self.plan.tensor == 1:
            return 0
        following = next((layer.role for layer in layers[index + 1 :] if layer.role != "replicated"), "")
        is_last_column = layers[index].role == "column" and following not in ("column", "row")
        return layers[index].output_bytes if layers[index].role in ("row", "block", "table") or is_last_column else 0

    def backward_collective_bytes(self, index: int) -> int:
        """Return the bytes that the tensor group all-reduces after the backward pass of a layer; 0 for none.

        Each rank has the gradient of a column-split matrix's input for its columns only. Matrices with one input add
        theirs first, so the first of them all-reduces.
        """
        layers = self.timeline.layers
        if self.plan.tensor == 1 or index == 0 or layers[index].role not in ("column", "block"):
            return 0
        preceding = next((layer.role for layer in reversed(layers[:index]) if layer.role != "replicated"), "")
        return 0 if layers[index].role == preceding == "column" else layers[index - 1].output_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes of a microbatch's activations that it sends to the next stage."""
        return self.layers[-1].output_bytes

    def units(self) -> list[list[int]]:
        """Return indices of layers in groups of `bucket_bytes` or more, which `zero3` gathers together."""
        groups: list[list[int]] = [[]]
        for index in range(self.first, self.last):
            if groups[-1] and self.parameter_bytes(groups[-1]) >= self.plan.bucket_bytes:
                groups.append([])
            groups[-1].append(index)
        return groups

    def memory_bytes(self, position: int, replicas: int) -> float:
        """Return the bytes of parameters, gradients, optimizer state and activations of a rank.

        Args:
            position: The stage's position in the pipeline, from 0.
            replicas: Number of replicas.

        Returns:
            Bytes. Buffers of the communication library and workspace of kernels are not counted.
        """
        plan, timeline = self.plan, self.timeline
        parameters, gradients = self.parameter_bytes(), self.gradient_bytes
        state = timeline.optimizer_bytes * parameters / timeline.parameter_bytes if timeline.parameter_bytes else 0.0
        in_flight = min(plan.microbatches, plan.pipeline - position) if plan.pipeline > 1 else 1
        if plan.sharding != "ddp":
            state /= replicas
        if plan.sharding in ("zero2", "zero3") and replicas > 1:
            gradients = gradients / replicas + min(gradients, plan.bucket_bytes)
        if plan.sharding == "zero3" and replicas > 1:
            sizes = [self.parameter_bytes(unit) for unit in self.units()]
            gathered = max(map(sum, zip(sizes, [*sizes[1:], 0], strict=True)))  # a unit and the one gathered ahead
            parameters = parameters / replicas + gathered
        return parameters + gradients + state + self.activation_bytes * in_flight


def stages(timeline: Timeline, plan: Plan) -> list[Stage]:
    """Cut the layers into stages so that the slowest stage takes as little time as possible.

    Args:
        timeline: The recorded step.
        plan: The plan.

    Returns:
        Stages in the order of forward.

    Raises:
        ArgumentError: There are fewer layers than stages.
    """
    count, depth = len(timeline.layers), plan.pipeline
    if depth > count:
        raise ArgumentError(f"Plan: {timeline.name} has {count} layers, too few for {depth} pipeline stages")
    seconds = [layer.forward_seconds for layer in timeline.layers]
    for gradient in timeline.gradients:
        seconds[gradient.layer] += gradient.seconds
    boundaries = [0, *_boundaries(seconds, depth), count]
    return [Stage(timeline, plan, first, last) for first, last in pairwise(boundaries)]


def _boundaries(seconds: Sequence[float], depth: int) -> Iterator[int]:
    """Yield where each stage but the first begins. Dynamic programming over the first layers and the stages."""
    count = len(seconds)
    sums = [0.0]
    for value in seconds:
        sums.append(sums[-1] + value)
    slowest = [[0.0] + [float("inf")] * count]  # by number of stages, then by number of layers in them
    cuts: list[list[int]] = []
    for stage in range(1, depth + 1):
        row, cut_row = [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(stage, count - (depth - stage) + 1):
            for begin in range(stage - 1, end):
                candidate = max(slowest[-1][begin], sums[end] - sums[begin])
                if candidate < row[end]:
                    row[end], cut_row[end] = candidate, begin
        slowest.append(row)
        cuts.append(cut_row)
    positions, end = [], count
    for cut_row in reversed(cuts[1:]):
        end = cut_row[end]
        positions.append(end)
    yield from reversed(positions)
