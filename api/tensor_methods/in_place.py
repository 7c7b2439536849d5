"""In-place forms of functions that return new tensors."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.tensor import Tensor

__all__ = ["in_place_method"]


def in_place_method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the in-place form of `function`: it copies the result to the first operand, and returns that."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        return self.copy_(function(self, *args, **kwargs))

    method.__name__ = f"{function.__name__}_"
    method.__doc__ = f"`{function.__name__}` in place."
    return method
