"""Shapes of tensors, as `torch.Size`."""

from __future__ import annotations

from typing import SupportsIndex, overload

__all__ = ["Size"]


class Size(tuple[int, ...]):
    """A shape: a tuple of ints with the method `numel`.

    Args:
        iterable: The sizes.

    Example:
        >>> wg.ones(2, 3).shape
        weftgrad.Size([2, 3])
    """

    __slots__ = ()

    def numel(self) -> int:
        """Return the product of the sizes.

        Returns:
            Python int.

        Example:
            >>> wg.Size([2, 3]).numel()
            6
        """
        count = 1
        for n in self:
            count *= n
        return count

    def __add__(self, other: tuple[int, ...]) -> Size:  # type: ignore[override]  # a tuple adds any elements
        return Size(super().__add__(other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: tuple[int, ...]) -> Size:
        return Size(other + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> Size:
        return Size(super().__mul__(count))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"weftgrad.Size({list(self)})"

    @overload
    def __getitem__(self, item: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, item: slice) -> Size: ...
    def __getitem__(self, item: SupportsIndex | slice) -> int | Size:
        return Size(super().__getitem__(item)) if isinstance(item, slice) else super().__getitem__(item)
