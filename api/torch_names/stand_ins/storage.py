"""`torch.storage`: `UntypedStorage`, and a placeholder for `TypedStorage`, which no tensor of ours has."""

from ...tensor_methods.storage_methods import UntypedStorage
from ..placeholders import placeholder

__all__ = ["TypedStorage", "UntypedStorage"]

TypedStorage = placeholder("torch.storage.TypedStorage", "Use Tensor.untyped_storage().")
