"""The switches of `torch.backends`, for programs that set them. Each module says what its switches do here."""

from . import cpu, cuda, cudnn, mps

__all__ = ["cpu", "cuda", "cudnn", "mps"]
