"""What the base classes of `Module` know of the module that they are part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..runtime.tensor import Tensor
    from .module import Module
    from .parameter import Parameter

__all__ = ["Members"]


class Members:
    """The members of a module by name. `Module.__init__` creates the dicts, and `Module` defines the methods."""

    training: bool
    _non_persistent_buffers_set: set[str]

    if TYPE_CHECKING:  # `typing.get_type_hints` of a user's class must find no name that is not imported
        _parameters: dict[str, Parameter | None]
        _buffers: dict[str, Tensor | None]
        _modules: dict[str, Module | None]

        def children(self) -> Iterator[Module]: ...
        def named_modules(
            self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
        ) -> Iterator[tuple[str, Module]]: ...
        def get_submodule(self, target: str) -> Module: ...
