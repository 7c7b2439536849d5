"""Custom ops: hand-written kernels. A kernel is code, so only a trusted caller may load one (`trust=True`).

    template: a file name, without extension, in each folder of `templates/`; or sources: {opencl: the kernel source}
    plan: the module of `runtime/kinds/` whose `plan` chooses layouts and launches
    rules: the module of `runtime/autograd/` whose `rules(record)` returns the gradients; without it there are none
    out: the results by name, each `value`, or `kept` if it is only saved for backward and has no gradient

The template is rendered with `op`, the op's name. Its kernels follow the same conventions as all other kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import triton
from ..fields import OUT, Fields, Unread
from ..model import Op, SpecError
from ..signature import check_name
from . import Derived, OutputRow, Rendered, Source

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "UNREAD", "check", "derive", "render"]

FIELDS: Fields = {
    "template": ((str,), "the kernel's template file"),
    "plan": ((str,), "the planner"),
    "rules": ((str,), "the module with the gradients"),
    "out": OUT,
    "sources": ((dict,), "kernel text by target"),
}
REQUIRED = ()
UNREAD: Unread = {"grad": ((dict,), "name a module with the gradients in `rules`, or write grad: none")}


def check(op: Op) -> None:
    """Raise `SpecError` unless the op names a planner and has either a template or sources."""
    for field in ("plan", "rules"):
        if field in op.fields:
            check_name(op.text_field(field), field)
    if "plan" not in op.fields:
        raise SpecError("a custom op must name its planner", file=op.file, line=op.line, field="plan")
    if ("template" in op.fields) == ("sources" in op.fields):
        raise SpecError("give either a template or sources", file=op.file, line=op.line, field="template")
    template = op.text_field("template")
    if "template" in op.fields and not template.replace("_", "").replace(".", "").isalnum():
        raise SpecError(f"{template[:60]!r} is not a file's name", file=op.file, line=op.line, field="template")


def render(op: Op, environment: Environment) -> Rendered:
    """Return the kernel source with the op's name filled in."""
    if "sources" in op.fields:
        sources = {target: Source(str(text)) for target, text in op.mapping_field("sources").items()}
    else:
        name = op.text_field("template")
        sources = {"opencl": Source(environment.get_template(f"opencl/{name}.cl.j2").render(op=op.name))}
        sources["triton"] = triton.source(f"{name}.py.j2", environment, op=op.name)
    outputs = tuple(
        OutputRow(k, "value", op.result, "full", op.grad != "none" and role != "kept")
        for k, role in (op.outputs or {"out": "value"}).items()
    )
    detail = {k: op.fields[k] for k in ("plan", "rules") if k in op.fields}
    return Rendered(outputs, sources, detail)


def derive(op: Op) -> dict[str, Derived]:
    """Return nothing: the module that `rules` names provides the gradients."""
    return {}
