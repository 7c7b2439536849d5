"""`Variable`, PyTorch's former name of a tensor that is differentiated."""

from __future__ import annotations

from typing import Any

from ..runtime.tensor import Tensor

__all__ = ["Variable"]


class _IsTensor(type):
    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)


class Variable(metaclass=_IsTensor):
    """PyTorch's former name of a tensor that is differentiated.

    A call returns a leaf that shares the memory of `data`. Every tensor is an instance.

    Args:
        data: Tensor.
        requires_grad: Whether to record operations on the result.
        volatile: Ignored.

    Example:
        >>> wg.autograd.Variable(wg.tensor([1.0]), requires_grad=True)
        tensor([1.], requires_grad=True)
    """
