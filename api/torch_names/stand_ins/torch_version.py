"""`torch.torch_version`: the class of `torch.__version__`."""

from ..torch_module import TORCH_VERSION, TorchVersion

__all__ = ["TorchVersion"]

__version__ = TorchVersion(TORCH_VERSION)
