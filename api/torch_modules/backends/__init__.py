"""The switches of `torch.backends`, for programs that set them. Each module says what its switches do here."""

from . import cuda, cudnn, mps

__all__ = ["cuda", "cudnn", "mps"]
