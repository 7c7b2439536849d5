"""`weftgrad.cpu`: the device `cpu`, under PyTorch's names."""

from __future__ import annotations

from typing import Any

from .. import streams
from ..runtime.device import device as to_device
from . import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """There is always a CPU."""
    return True


def device_count() -> int:
    """1: all cores are one device."""
    return 1


def current_device() -> str:
    """`"cpu"`."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Wait for all work on the CPU. (PyTorch's CPU never has any pending.)"""
    streams.synchronize(to_device("cpu"))
