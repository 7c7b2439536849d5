"""Switches of PyTorch's backends, for programs that set them: what they stand for here is said in each."""

from . import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]
