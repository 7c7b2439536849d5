"""Tensor parallel layers, under `torch.distributed.tensor.parallel`'s names (Shoeybi et al. 2019, arXiv 1909.08053)."""

from .styles import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel, parallelize_module

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "SequenceParallel", "parallelize_module"]
