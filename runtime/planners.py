"""Find the planner of a kind of op. Planners are in `kinds`, one module for each kind."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from .kinds import Planned, Request

__all__ = ["planner"]

_planners: dict[str, Callable[[Request], Planned]] = {}


def planner(kind: str) -> Callable[[Request], Planned]:
    """Return the planner of `kind`: the function `plan` of the module of that name, imported at the first use."""
    plan = _planners.get(kind)
    if plan is None:
        plan = _planners[kind] = import_module(f".kinds.{kind}", __package__).plan
    return plan
