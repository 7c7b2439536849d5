"""`torch.utils.dlpack`: exchange of tensors with other libraries by DLPack."""

from __future__ import annotations

from enum import IntEnum

from ...creation.dlpack import from_dlpack
from ...runtime.tensor import Tensor

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


_TYPE_NUMBERS = {
    "kDLCPU": 1, "kDLCUDA": 2, "kDLCUDAHost": 3, "kDLOpenCL": 4, "kDLVulkan": 7, "kDLMetal": 8, "kDLVPI": 9,
    "kDLROCM": 10, "kDLROCMHost": 11, "kDLExtDev": 12, "kDLCUDAManaged": 13, "kDLOneAPI": 14, "kDLWebGPU": 15,
    "kDLHexagon": 16,
}  # fmt: skip
DLDeviceType = IntEnum("DLDeviceType", _TYPE_NUMBERS)  # type: ignore[misc]  # mypy reads literals only
"""Types of devices, by the numbers of DLPack's header."""


def to_dlpack(tensor: Tensor) -> object:
    """Return a DLPack capsule of the tensor's memory."""
    return tensor.__dlpack__()
