"""`Variable`, PyTorch's former name of a tensor that is differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.tensor import Tensor

__all__ = ["Variable"]


class _IsTensor(type):
    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Tensor:
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)


if TYPE_CHECKING:  # type checkers, which do not run `__instancecheck__`, see a subclass of Tensor
    _Base = Tensor
else:
    _Base = object


class Variable(_Base, metaclass=_IsTensor):
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

    if TYPE_CHECKING:

        def __init__(self, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> None: ...
