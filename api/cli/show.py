"""`weftgrad show OP`: everything that is known of an op, from its spec to the program a device compiles."""

from __future__ import annotations

import argparse
import difflib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.errors import ArgumentError, WeftgradError
from .terminal import Style

__all__ = ["register", "shown"]

_LANGUAGES = {"opencl": ("c", "//"), "triton": ("python", "#")}  # and what begins a comment


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser("show", help="show an op: spec, derivatives, kernels")
    made.add_argument("op", help="the op's name, or a derivative's, such as sigmoid_grad_input")
    made.add_argument("--target", default="opencl", choices=_LANGUAGES, help="whose kernels (default: opencl)")
    made.add_argument("--dtype", help="show the program that a call with this dtype compiles")
    made.add_argument("--device", default=None, help="for which device, with --dtype (default: the default one)")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the op."""
    for part in shown(options.op, Style(), options.target, options.dtype, options.device):
        print(part)
    return 0


def shown(name: str, style: Style, target: str, dtype: str | None, device: str | None) -> Iterator[str]:
    """The parts, in order. Raises `ArgumentError` for an op that does not exist."""
    from .._generated import ops as generated
    from ..codegen.reference import spec_text
    from ..runtime.records import registry

    name = generated.ALIASES.get(name, name)
    if name not in registry:
        near = difflib.get_close_matches(name, [r.name for r in registry], 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ArgumentError(f"show: there is no op named {name!r}{hint}")
    record = registry[name]
    yield style("heading", "spec")
    yield style.highlight("yaml", spec_text(record.spec))
    if name in generated.FUNCTIONS:
        function: Any = generated.FUNCTIONS[name][0]
        yield style("heading", "signature")
        yield f"{name}{inspect.signature(function)}\n".replace("'", "")
    yield style("heading", "facts")
    yield facts(record)
    yield style("heading", "derivatives")
    yield derivatives(record)
    text = record.texts.get(target)
    if dtype is not None:
        yield style("heading", f"program for {dtype}")
        yield style.highlight(*program_text(record, dtype, device))
    elif text is not None:
        language, mark = _LANGUAGES[target]
        yield style("heading", f"kernels ({target})")
        yield style.highlight(language, text.source.rstrip())
        if text.functions:
            yield style("comment", f"{mark} with the functions {', '.join(text.functions)}")
    elif record.texts:
        raise ArgumentError(f"show: {name} has no kernels for {target}; there are {', '.join(record.texts)}")
    else:
        yield style("comment", f"no kernel: a {record.kind} op")


def facts(record: Any) -> str:
    """Kind, operands and results, one a line."""
    lines = [f"kind      {record.kind}", f"dtypes    {record.dtypes}"]
    for o in record.operands:
        lines.append(f"operand   {o.name}: {o.role}, {o.type}, {o.scope}")
    for o in record.outputs:
        grad = "differentiable" if o.differentiable else "not differentiable"
        kept = ", kept for gradients" if o.saved else ""
        lines.append(f"result    {o.name}: {o.type}, dtype {o.result}, {o.scope}, {grad}{kept}")
    lines += [f"static    {name}" for name in record.statics]
    lines += [f"{key:9} {value}" for key, value in record.detail.items()]
    if record.bare:
        lines.append(f"bare      {record.bare}, for calls that nothing is derived from")
    return "\n".join(lines) + "\n"


def derivatives(record: Any) -> str:
    """The gradient of each operand, and which tensors a call keeps for it."""
    from ..runtime.records import registry

    lines = []
    saved: set[str] = set()
    for operand, rule in registry.gradients(record).items():
        saved |= {n for n in rule.operands if not n.startswith("grad")}
        if rule.op is None:
            lines.append(f"{operand:9} " + ("grad" if rule.function is None else "computed by the runtime"))
            continue
        target = registry[rule.op]
        formula = target.spec.get("out", target.spec.get("reduce", ""))
        if isinstance(formula, dict):
            formula = "; ".join(map(str, formula.values()))
        names = [o.name for o in target.operands]
        given = ", ".join(a if a == b else f"{b}={a}" for a, b in zip(rule.operands, names, strict=False))
        lines.append(f"{operand:9} {formula}    [{rule.op}({given})]")
    if not lines:
        return "none\n"
    return "\n".join([*lines, f"saved     {', '.join(sorted(saved)) or 'nothing'}"]) + "\n"


def program_text(record: Any, dtype: str, device: str | None) -> tuple[str, str]:
    """The language and the source that a call on small contiguous tensors of `dtype` compiles on `device`."""
    from ..codegen.loader import op_from_mapping
    from ..runtime import dtypes, program
    from ..runtime.device import device as to_device
    from ..runtime.dispatch import plan_for
    from ..runtime.triton import source
    from .samples import arguments

    place = to_device(device)
    try:
        op = op_from_mapping(record.spec)
        named = arguments(op, place, dtypes.parse(dtype), np.random.default_rng(0), shape=(64, 1000))
        operands = [named[p.name] for p in op.operands]
        planned = plan_for(record, operands, tuple(named[n] for n in record.statics))
    except (WeftgradError, KeyError, StopIteration) as error:
        raise ArgumentError(f"show: cannot plan a call of {record.name} with {dtype}: {error}") from error
    instances = [s.instance for s in planned.steps]
    if place.driver.target == "triton":
        return "python", "\n".join(dict.fromkeys(source.module_text(i) for i in instances))
    able = place.driver.capabilities
    return "c", program.source(instances, builtins=able.builtins, fp64=able.fp64)
