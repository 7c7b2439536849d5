"""View ops: new shape, strides and offset over the same memory. A spec names one of the runtime's view functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fields import Fields, Unread
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_DTYPES", "FIELDS", "REQUIRED", "UNREAD", "VIEWS", "check", "derive", "render"]

FIELDS: Fields = {
    "view": ((str,), "the geometry function"),
}
REQUIRED = ("view",)
DEFAULT_DTYPES = "all"
UNREAD: Unread = {
    "grad": ((str, dict), "leave `grad` out; every view has a gradient, which follows from its geometry"),
    "result": ((str,), "leave `result` out; a view has the dtype of its operand"),
    "dtypes": ((str,), "leave `dtypes` out; a view takes every dtype"),
}

VIEWS = (
    "view", "permute", "transpose", "expand", "squeeze", "unsqueeze", "select", "slice", "narrow", "index",
    "as_strided", "flip", "diagonal", "unfold", "alias",
)  # fmt: skip


def check(op: Op) -> None:
    """Raise `SpecError` for an unknown view function."""
    view = op.text_field("view")
    if view not in VIEWS:
        raise SpecError(f"unknown geometry {view!r}", field="view", suggestion=f"one of {', '.join(VIEWS)}")


def render(op: Op, environment: Environment) -> Rendered:
    """Return a record without kernels."""
    return Rendered((OutputRow(result="like:input"),), {}, {"view": op.fields["view"]})


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the runtime has the gradients of views."""
    return {}
