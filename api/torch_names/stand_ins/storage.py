"""`torch.storage`: the class of a tensor's memory, and one that no tensor has."""

from ...tensor_methods.storage_methods import UntypedStorage
from ..placeholders import placeholder

__all__ = ["TypedStorage", "UntypedStorage"]

TypedStorage = placeholder("torch.storage.TypedStorage", "Use Tensor.untyped_storage().")
