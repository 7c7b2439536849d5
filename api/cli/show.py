"""`weftgrad show OP`: show an op, from its spec to the program that a device compiles."""

from __future__ import annotations

import argparse
import difflib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.errors import ArgumentError, WeftgradError
from .terminal import Style

__all__ = ["describe_op", "register"]

_LANGUAGES = {"opencl": ("c", "//"), "triton": ("python", "#")}  # highlighting language, comment marker


def register(subparsers: Any) -> None:
    """Add the command."""
    command = subparsers.add_parser("show", help="show an op: spec, derivatives, kernels")
    command.add_argument("op", help="the op's name, or a derivative's, such as sigmoid_grad_input")
    command.add_argument("--target", default="opencl", choices=_LANGUAGES, help="the kernel language (default: opencl)")
    command.add_argument("--dtype", help="show the program that a call with this dtype compiles")
    command.add_argument("--device", default=None, help="the device, with --dtype (default: the default one)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the op."""
    for section in describe_op(options.op, Style(), options.target, options.dtype, options.device):
        print(section)
    return 0


def describe_op(name: str, style: Style, target: str, dtype: str | None, device: str | None) -> Iterator[str]:
    """Yield the sections of the output, in order.

    Raises:
        ArgumentError: The op does not exist, or has no kernels for `target`.
    """
    from .._generated import ops as generated
    from ..codegen.reference import spec_text
    from ..runtime.records import registry

    name = generated.ALIASES.get(name, name)
    if name not in registry:
        suggestions = difflib.get_close_matches(name, [r.name for r in registry], 3)
        hint = f"; did you mean {', '.join(suggestions)}?" if suggestions else ""
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
        language, comment_prefix = _LANGUAGES[target]
        yield style("heading", f"kernels ({target})")
        yield style.highlight(language, text.source.rstrip())
        if text.functions:
            yield style("comment", f"{comment_prefix} with the functions {', '.join(text.functions)}")
    elif record.texts:
        raise ArgumentError(f"show: {name} has no kernels for {target}; there are {', '.join(record.texts)}")
    else:
        yield style("comment", f"no kernel: a {record.kind} op")


def facts(record: Any) -> str:
    """Return kind, operands and results, one per line."""
    lines = [f"kind      {record.kind}", f"dtypes    {record.dtypes}"]
    for o in record.operands:
        lines.append(f"operand   {o.name}: {o.role}, {o.type}, {o.scope}")
    for o in record.outputs:
        grad = "differentiable" if o.differentiable else "not differentiable"
        suffix = ", kept for gradients" if o.saved else ""
        lines.append(f"result    {o.name}: {o.type}, dtype {o.result}, {o.scope}, {grad}{suffix}")
    lines += [f"static    {name}" for name in record.statics]
    lines += [f"{key:9} {value}" for key, value in record.detail.items()]
    if record.bare:
        lines.append(f"bare      {record.bare}, for calls without gradients")
    return "\n".join(lines) + "\n"


def derivatives(record: Any) -> str:
    """Return the gradient formula of each operand, and the tensors that a call saves for them."""
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
        arguments = ", ".join(a if a == b else f"{b}={a}" for a, b in zip(rule.operands, names, strict=False))
        lines.append(f"{operand:9} {formula}    [{rule.op}({arguments})]")
    if not lines:
        return "none\n"
    return "\n".join([*lines, f"saved     {', '.join(sorted(saved)) or 'nothing'}"]) + "\n"


def program_text(record: Any, dtype: str, device: str | None) -> tuple[str, str]:
    """Return the language and source that a call on small contiguous tensors of `dtype` compiles on `device`."""
    from ..codegen.loader import op_from_mapping
    from ..runtime import dtypes, program
    from ..runtime.device import device as to_device
    from ..runtime.dispatch import plan_for
    from ..runtime.triton import source
    from .samples import arguments

    target_device = to_device(device)
    try:
        op = op_from_mapping(record.spec)
        op_arguments = arguments(op, target_device, dtypes.parse(dtype), np.random.default_rng(0), shape=(64, 1000))
        operands = [op_arguments[p.name] for p in op.operands]
        plan = plan_for(record, operands, tuple(op_arguments[n] for n in record.statics))
    except (WeftgradError, KeyError, StopIteration) as error:
        raise ArgumentError(f"show: cannot plan a call of {record.name} with {dtype}: {error}") from error
    instances = [s.instance for s in plan.steps]
    if target_device.driver.target == "triton":
        return "python", "\n".join(dict.fromkeys(source.module_text(i) for i in instances))
    caps = target_device.driver.capabilities
    return "c", program.source(instances, builtins=caps.builtins, fp64=caps.fp64)
