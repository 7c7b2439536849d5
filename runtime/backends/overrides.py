"""Claims about a device that it does not make itself: schedules of devices that are not there run on one that is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .protocol import Capabilities

__all__ = ["override"]


def override(found: Capabilities, text: str) -> Capabilities:
    """`found` with the fields named in `text` (`field=value,…`) replaced."""
    changes: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        field, _, value = item.partition("=")
        kind = type(getattr(found, field))
        changes[field] = value not in ("0", "False") if kind is bool else kind(value)
    return replace(found, **changes)
