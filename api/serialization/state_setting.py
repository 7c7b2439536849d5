"""Set the attributes of objects in a file. None of them may tell another library where to read memory."""

from __future__ import annotations

import pickle
from typing import Any

from .restricted_pickle import is_protocol_name

__all__ = ["set_attributes", "set_trusted_state"]


def set_attributes(value: Any, state: object) -> None:
    """Set attributes that a program has added to an OrderedDict or a tensor.

    Raises:
        UnpicklingError: The class has an attribute of the name, or it may say where NumPy reads memory.
    """
    if type(state) is not dict or any(
        type(name) is not str or name.startswith("__") or hasattr(type(value), name) for name in state
    ):
        kind = type(value).__name__
        raise pickle.UnpicklingError(f"it sets attributes that every {kind} has, or special ones")
    vars(value).update(state)


def set_trusted_state(value: Any, state: object) -> None:
    """Set the state of an instance of a class that the user trusts, as Python's unpickler does.

    Raises:
        UnpicklingError: The state would be lost, or has an attribute that says where NumPy reads memory.
    """
    kind = type(value)
    if hasattr(kind, "__setstate__"):
        kind.__setstate__(value, state)
        return
    parts: tuple[Any, Any] = state if type(state) is tuple and len(state) == 2 else (state, None)
    if any(type(part) not in (dict, type(None)) for part in parts):
        raise pickle.UnpicklingError(f"the state of a {kind.__name__} is no dict of attributes")
    attributes, slots = (part or {} for part in parts)
    if any(type(name) is not str or is_protocol_name(name) for name in (*attributes, *slots)):
        raise pickle.UnpicklingError(f"it sets special attributes of a {kind.__name__}")
    if hasattr(value, "__dict__"):
        vars(value).update(attributes)
    else:
        slots = attributes | slots
    for name, item in slots.items():
        setattr(value, name, item)
