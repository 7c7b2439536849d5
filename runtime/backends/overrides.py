"""Override a device's capabilities, so that tests run the schedules of devices that are not available."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .protocol import Capabilities

__all__ = ["override"]


def override(caps: Capabilities, text: str) -> Capabilities:
    """Return `caps` with the fields named in `text` (`field=value,…`) replaced. Raise `ValueError` for a bad value."""
    changes: dict[str, Any] = {}  # values of the fields' own types
    for item in filter(None, text.split(",")):
        field, _, value = item.partition("=")
        field_type = type(getattr(caps, field))
        changes[field] = value not in ("0", "False") if field_type is bool else field_type(value)
    if changes.get("registers", 16) not in (16, 32):
        raise ValueError(f"registers={changes['registers']}: there are tables of tiles for 16 and 32 registers only")
    return replace(caps, **changes)
