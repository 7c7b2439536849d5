"""`torch.utils.weak`: weak references, and dictionaries whose keys are objects by identity and may vanish.

A tensor's `==` compares elements, so that `weakref.WeakKeyDictionary` cannot hold tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TypeVar

from ...runtime.tensor import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class WeakIdRef(weakref.ref[_Key]):
    """A weak reference that hashes and compares by the identity of the object."""

    __slots__ = ("_id",)

    def __init__(self, key: _Key, callback: object = None):
        super().__init__(key, callback)  # type: ignore[call-arg]  # typeshed declares no arguments
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return NotImplemented
        own, theirs = self(), other()
        return self is other if own is None or theirs is None else own is theirs


class WeakIdKeyDictionary(MutableMapping[_Key, _Value]):
    """A dictionary with keys by identity. An entry vanishes with its key."""

    def __init__(self, entries: Mapping[_Key, _Value] | None = None):
        self._entries: dict[WeakIdRef[_Key], _Value] = {}
        self.update(entries or {})

    def __getitem__(self, key: _Key) -> _Value:
        return self._entries[WeakIdRef(key)]

    def __setitem__(self, key: _Key, value: _Value) -> None:
        entries = self._entries
        entries[WeakIdRef(key, lambda reference: entries.pop(reference, None))] = value

    def __delitem__(self, key: _Key) -> None:
        del self._entries[WeakIdRef(key)]

    def __iter__(self) -> Iterator[_Key]:
        for reference in list(self._entries):
            key = reference()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return WeakIdRef(key) in self._entries


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor: call it for the tensor, or None after its end."""

    def __init__(self, tensor: Tensor):
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
