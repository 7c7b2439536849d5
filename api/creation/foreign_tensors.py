"""Copy arrays and tensors of other libraries, for state dicts that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime import dtypes, host_data
from ..runtime.device import device
from ..runtime.errors import DTypeError, WeftgradError
from ..runtime.tensor import Tensor

__all__ = ["copy_foreign_tensor", "is_foreign_tensor"]


def is_foreign_tensor(value: object) -> bool:
    """Return True for an array of NumPy's, a scalar of NumPy's, and a tensor of PyTorch or another library.

    Args:
        value: Any object.

    Returns:
        Python bool.

    Example:
        >>> from weftgrad.creation.foreign_tensors import is_foreign_tensor
        >>> is_foreign_tensor(wg.ones(1).numpy()), is_foreign_tensor(wg.ones(1)), is_foreign_tensor([1.0])
        (True, False, False)
    """
    # Of the class: a file can set an attribute of an instance.
    return hasattr(type(value), "__array__") and not isinstance(value, Tensor)


def copy_foreign_tensor(value: Any) -> Tensor:
    """Return a copy on `cpu` of an array or tensor of another library.

    Args:
        value: Array of NumPy's, or a tensor of PyTorch on any of its devices, bfloat16 included.

    Returns:
        Tensor of the same shape and dtype, without a gradient.

    Raises:
        DTypeError: There are no tensors of its dtype.

    Example:
        >>> import numpy as np
        >>> from weftgrad.creation.foreign_tensors import copy_foreign_tensor
        >>> copy_foreign_tensor(np.arange(3))
        tensor([0, 1, 2])
    """
    is_bfloat16 = str(getattr(value, "dtype", "")) == "torch.bfloat16"
    if hasattr(value, "detach"):  # PyTorch's
        value = value.detach().cpu()
    if is_bfloat16:  # NumPy has no such dtype; float32 has all its values
        return host_data.from_host(np.asarray(value.float()), dtypes.bfloat16, device("cpu"))
    try:
        array = np.asarray(value)
    except (TypeError, RuntimeError) as error:  # PyTorch's, for dtypes and layouts that NumPy lacks
        if isinstance(error, WeftgradError):
            raise
        raise DTypeError(f"it cannot be converted to an array: {error}") from error
    return host_data.from_host(array, dtypes.from_numpy(array.dtype), device("cpu"))
