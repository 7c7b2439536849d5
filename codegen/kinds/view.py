"""View: other geometry over the same memory. The geometry functions are the runtime's; a spec names one."""

from __future__ import annotations

from typing import Any

from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered

__all__ = ["VIEWS", "check", "derive", "render"]

VIEWS = (
    "view", "permute", "transpose", "expand", "squeeze", "unsqueeze", "select", "slice", "narrow", "index",
    "as_strided", "flip", "diagonal", "unfold", "alias",
)  # fmt: skip


def check(op: Op) -> None:
    """Raise `SpecError` for a geometry that does not exist."""
    if op.fields["view"] not in VIEWS:
        raise SpecError(
            f"unknown geometry {op.fields['view']!r}", field="view", suggestion=f"one of {', '.join(VIEWS)}"
        )


def render(op: Op, environment: Any) -> Rendered:
    """No kernel."""
    return Rendered((OutputRow(result="like:input"),), {}, {"view": op.fields["view"]})


def derive(op: Op) -> dict[str, Derived]:
    """The runtime knows the gradients of geometries."""
    return {}
