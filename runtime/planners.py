"""Find the planner of a kind of op. Planners are in `kinds`, one module for each kind, or registered."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from .kinds import Planned, Request
from .lazy_modules import import_lazily

__all__ = ["planner", "register_planner"]

_planners: dict[str, Callable[[Request], Planned]] = {}


def planner(kind: str) -> Callable[[Request], Planned]:
    """Return the planner of `kind`: the function `plan` of the module of that name, imported at the first use."""
    plan = _planners.get(kind)
    if plan is None:
        plan = _planners[kind] = import_lazily(f".kinds.{kind}", __package__).plan
    return plan


def register_planner(kind: str, plan: Callable[[Request], Planned]) -> None:
    """Register the planner of a kind from outside the package (see `codegen.kind_modules.register_kind`).

    Raises:
        ValueError: The kind has a planner already.
    """
    is_in_package = find_spec(f".kinds.{kind}", __package__) is not None
    if is_in_package or _planners.setdefault(kind, plan) is not plan:
        raise ValueError(f"kind {kind!r} has a planner already; choose another name")
