"""Custom ops: each names the module of this package that plans it."""

from __future__ import annotations

from importlib import import_module

from . import Planned, Request

__all__ = ["plan"]


def plan(request: Request) -> Planned:
    """What the op's own planner gives."""
    module = import_module(f".{request.record.detail['plan']}", __package__)
    return module.plan(request)
