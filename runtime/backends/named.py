"""Tables of descriptions that backends add to from their own modules: styles of devices, and languages of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

__all__ = ["NamedTable"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=_Named)


class NamedTable(Generic[Item]):
    """Items by their names.

    Args:
        noun: What an item is, for error messages: "style".
        items: The first items.
    """

    def __init__(self, noun: str, items: Iterable[Item]):
        self._noun = noun
        self._items: dict[str, Item] = {item.name: item for item in items}

    def register(self, item: Item) -> Item:
        """Add an item, and return it. An equal item may be added again, as when its module is reloaded.

        Raises:
            ValueError: Another item has this name.
        """
        if self._items.setdefault(item.name, item) != item:
            raise ValueError(f"a {self._noun} named {item.name!r} exists already; choose another name")
        return item

    def find(self, name: str) -> Item:
        """Return the item of a name.

        Raises:
            ValueError: There is none; the message lists all names.
        """
        item = self._items.get(name)
        if item is None:
            raise ValueError(f"no {self._noun} is named {name!r}; there are {', '.join(self._items)}")
        return item
