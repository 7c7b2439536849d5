"""Plan custom ops: the spec of each names the module of this package that plans it."""

from __future__ import annotations

from ..lazy_modules import import_lazily
from . import Planned, Request

__all__ = ["plan"]


def plan(request: Request) -> Planned:
    """Call the op's own planner."""
    module = import_lazily(f".{request.record.detail['plan']}", __package__)
    return module.plan(request)
