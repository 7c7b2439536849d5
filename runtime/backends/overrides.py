"""Claims about a device that it does not make itself: schedules of devices that are not there run on one that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .protocol import Capabilities

__all__ = ["override"]


def override(found: Capabilities, text: str) -> Capabilities:
    """`found` with the fields named in `text` (`field=value,…`) replaced. Raises `ValueError` for what cannot be."""
    changes: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        field, _, value = item.partition("=")
        kind = type(getattr(found, field))
        changes[field] = value not in ("0", "False") if kind is bool else kind(value)
    if changes.get("registers", 16) not in (16, 32):
        raise ValueError(f"registers={changes['registers']}: tables of tiles are for 16 and for 32")
    return replace(found, **changes)
