"""`torch.utils.hooks`: the handle of a hook."""

from ...tensor_methods.hooks import Handle as RemovableHandle

__all__ = ["RemovableHandle"]
