"""Custom ops: hand-written kernels.

    template: the kernel's template: templates/opencl/NAME.cl.j2 and templates/triton/NAME.py.j2
    sources: the kernel's source by target, such as {opencl: the text}, instead of a template
    plan: the module of `runtime/kinds/` whose `plan` chooses layouts and launches
    rules: the module of `runtime/autograd/` whose `rules(record)` returns the gradients; without it the op has none
    out: the results by name, each `value`, or `kept` if it is only saved for backward and has no gradient

`plan` is required, and either `template` or `sources`. A template is rendered with `op`, the op's name. Its kernels
follow the same conventions as all other kernels.

A spec file is untrusted data, but a kernel is code that will run. So `loader.load_file` refuses custom ops unless its
caller passes `trust=True`.
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
    "template": ((str,), "the kernel's template: a file name without extension"),
    "plan": ((str,), "the module of the planner"),
    "rules": ((str,), "the module with the gradients"),
    "out": OUT,
    "sources": ((dict,), "kernel source by target"),
}
REQUIRED = ()  # `check` reports a missing planner or template
UNREAD: Unread = {"grad": ((dict,), "name a module with the gradients in `rules`, or write grad: none")}


def check(op: Op) -> None:
    """Raise `SpecError` unless the op names a planner and has either a template or sources.

    The names become parts of file and module names, so they may not contain path separators.
    """
    for field in ("plan", "rules"):
        if field in op.fields:
            check_name(op.text_field(field), field)
    if "plan" not in op.fields:
        raise SpecError("a custom op must name its planner", file=op.file, line=op.line, field="plan")
    if ("template" in op.fields) == ("sources" in op.fields):
        raise SpecError("give either a template or sources", file=op.file, line=op.line, field="template")
    template = op.text_field("template")
    if "template" in op.fields and not template.replace("_", "").replace(".", "").isalnum():
        raise SpecError(f"{template[:60]!r} is not a file name", file=op.file, line=op.line, field="template")


def render(op: Op, environment: Environment) -> Rendered:
    """Return the kernel source by target, with the op's name filled in, and the op's results."""
    if "sources" in op.fields:
        sources = {target: Source(str(text)) for target, text in op.mapping_field("sources").items()}
    else:
        template = op.text_field("template")
        sources = {
            "opencl": Source(environment.get_template(f"opencl/{template}.cl.j2").render(op=op.name)),
            "triton": triton.source(f"{template}.py.j2", environment, op=op.name),
        }
    outputs = tuple(
        OutputRow(name, result=op.result, differentiable=op.grad != "none" and role != "kept")
        for name, role in (op.outputs or {"out": "value"}).items()
    )
    detail = {field: op.fields[field] for field in ("plan", "rules") if field in op.fields}
    return Rendered(outputs, sources, detail)


def derive(op: Op) -> dict[str, Derived]:
    """Return an empty dict: no gradient is derived, the module that `rules` names provides them."""
    return {}
