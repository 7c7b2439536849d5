"""`PipelineStage`: the part of a model that one rank of a pipeline has, and its messages to the neighbouring stages."""

from __future__ import annotations

from typing import Any

from ... import distributed as dist
from ...creation.factories import empty, zeros
from ...nn.module import Module
from ...runtime import dtypes
from ...runtime.device import DeviceLike
from ...runtime.device import device as to_device
from ...runtime.errors import ArgumentError, ShapeError
from ...runtime.tensor import Tensor

__all__ = ["PipelineStage"]

_DTYPES = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.int32)
_MAX_DIMS = 8
_FORWARD_TAG, _BACKWARD_TAG, _LAYOUT_TAG = 11, 12, 13


class PipelineStage:
    """A stage of a pipeline. The stage with index i is on rank i of the group.

    Args:
        submodule: The part of the model. It takes one tensor and returns one.
        stage_index: Index of the stage.
        num_stages: Number of stages, the group's ranks.
        device: Device of the tensors.
        group: The process group; None for all ranks.

    Raises:
        ArgumentError: `num_stages` is not the number of ranks, or `stage_index` not this rank.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: DeviceLike | None = None,
        group: Any = None,
    ):
        world_size, rank = dist.get_world_size(group), dist.get_rank(group)
        if (num_stages, stage_index) != (world_size, rank):
            raise ArgumentError(
                f"PipelineStage: stage {stage_index} of {num_stages} on rank {rank} of {world_size}; every rank has "
                "one stage, that of its index"
            )
        self.submod, self.stage_index, self.num_stages, self.group = submodule, stage_index, num_stages, group
        self.device = to_device(device) if device is not None else to_device("cpu")
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self._input_layout: tuple[Any, tuple[int, ...]] | None = None
        self._has_sent_layout = False
        self._sends: list[Any] = []

    def _rank_of(self, stage: int) -> int:
        return stage if self.group is None else dist.get_global_rank(self.group, stage)

    def receive_input(self) -> Tensor:
        """Return the previous stage's output of the next microbatch; all have the layout of the first one."""
        source = self._rank_of(self.stage_index - 1)
        if self._input_layout is None:
            header = zeros(_MAX_DIMS + 2, dtype=dtypes.int64)
            dist.recv(header, source, self.group, _LAYOUT_TAG)
            code, ndim, *sizes = header.tolist()
            self._input_layout = _DTYPES[code], tuple(sizes[:ndim])
        dtype, shape = self._input_layout
        value = empty(*shape, dtype=dtype, device=self.device)
        dist.recv(value, source, self.group, _FORWARD_TAG)
        return value.requires_grad_() if dtype.kind == "f" else value

    def send_output(self, output: Tensor) -> None:
        """Start to send a microbatch's output to the next stage."""
        target, layout = self._rank_of(self.stage_index + 1), output.meta
        if not self._has_sent_layout:
            if layout.dtype not in _DTYPES or len(layout.shape) > _MAX_DIMS:
                raise ShapeError(f"PipelineStage: cannot send {layout.dtype.name} of shape {list(layout.shape)}")
            header = zeros(_MAX_DIMS + 2, dtype=dtypes.int64)
            for position, number in enumerate((_DTYPES.index(layout.dtype), len(layout.shape), *layout.shape)):
                header[position] = number
            self._has_sent_layout = True
            self._sends.append(dist.isend(header, target, self.group, _LAYOUT_TAG))
        self._sends.append(dist.isend(output.detach().contiguous(), target, self.group, _FORWARD_TAG))

    def receive_gradient(self, output: Tensor) -> Tensor:
        """Return the gradient of a microbatch's output, from the next stage."""
        grad = empty(*output.shape, dtype=output.dtype, device=self.device)
        dist.recv(grad, self._rank_of(self.stage_index + 1), self.group, _BACKWARD_TAG)
        return grad

    def send_gradient(self, input: Tensor) -> None:
        """Start to send the gradient of a microbatch's input to the previous stage."""
        grad = input.grad if input.grad is not None else zeros(*input.shape, dtype=input.dtype, device=self.device)
        self._sends.append(
            dist.isend(grad.contiguous(), self._rank_of(self.stage_index - 1), self.group, _BACKWARD_TAG)
        )

    def finish(self) -> None:
        """Wait for all messages that this stage has started to send."""
        for work in self._sends:
            work.wait()
        self._sends = []
        self._input_layout, self._has_sent_layout = None, False
