"""Pipelines of stages on different ranks, under `torch.distributed.pipelining`'s names."""

from .schedules import Schedule1F1B, ScheduleGPipe
from .stage import PipelineStage

__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe"]
