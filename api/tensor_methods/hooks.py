"""The handle that `register_hook` and its siblings return."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TypeVar

__all__ = ["Handle", "next_key"]

_Hook = TypeVar("_Hook")
_keys = itertools.count()


def next_key() -> int:
    """Return a key that no hook of any tensor has. Keys increase, so that hooks run in the order of registration."""
    return next(_keys)


class Handle:
    """The handle of a hook. `remove()` removes the hook, and so does leaving a `with` block.

    Args:
        hooks: Dict of hooks, which the tensor or module owns.
        key: Key of the hook in that dict, which becomes the attribute `key`.

    Example:
        >>> x = wg.ones(1, requires_grad=True)
        >>> handle = x.register_hook(lambda grad: grad * 10)
        >>> handle.remove()
        >>> x.sum().backward()
        >>> x.grad
        tensor([1.])
    """

    def __init__(self, hooks: dict[int, _Hook], key: int):
        self.key = key
        self._remove = partial(hooks.pop, key, None)

    def remove(self) -> None:
        """Remove the hook; do nothing if it was removed."""
        self._remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
