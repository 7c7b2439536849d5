"""`weftgrad show`: list the ops, describe an op, or print the kernels that a call runs.

weftgrad show                                                the ops, by group
weftgrad show softmax                                        signature, formula, derivative, saved tensors, cost
weftgrad show softmax --kernel --device cuda --dtype float16 the text that is compiled for that call
weftgrad show my_ops.yaml swish                              an op of your own; without a name, all ops of the file
weftgrad show softmax --source                               the kernel text of all schedules; with --kernel, the
whole program that the compiler gets
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import ops
from .._generated import ops as generated
from ..codegen.loader import load_file
from ..runtime import dtypes, program
from ..runtime.backends.targets import target_named
from ..runtime.errors import ArgumentError
from ..runtime.records import OpRecord, registry
from ..runtime.triton import source as triton_source
from .described_devices import DESCRIPTIONS, find_device
from .kernel_text import SHAPE, first_launches, kernel_text, planned_steps
from .op_page import op_list, op_page
from .python_functions import function_page, public_functions
from .terminal import Style

__all__ = ["add_options", "kernel_sections", "sections"]

_LANGUAGES = {"opencl": ("c", "//"), "triton": ("python", "#")}  # highlighting language, comment marker


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = "Lists the ops, describes one, or prints the kernels that a call of it runs."
    command.add_argument(
        "op", nargs="?", metavar="OP",
        help="an op, a derivative such as sigmoid_grad_input, a function such as linear, or a spec file of yours",
    )  # fmt: skip
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="after a spec file: only this op of it, or this derivative of one"
    )
    command.add_argument("--kernel", action="store_true", help="print the kernels of a call, as they are compiled")
    command.add_argument(
        "--device",
        help=f"with --kernel: a device, or a described one: {', '.join(DESCRIPTIONS)} (default: the default device)",
    )
    command.add_argument("--dtype", default="float32", help="with --kernel: the dtype of operands (default: float32)")
    command.add_argument("--schedule", default="", help="with --kernel: print this schedule, from a call that uses it")
    command.add_argument(
        "--shape", type=_shape, default=SHAPE, metavar="64x1000", help="with --kernel: the operands' shape"
    )
    command.add_argument("--functions", action="store_true", help="with --kernel: print the functions it calls as well")
    command.add_argument(
        "--source", action="store_true", help="print the text of all schedules; with --kernel, the whole program"
    )
    command.add_argument("--target", default="opencl", choices=_LANGUAGES, help="with --source: the kernel language")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the options ask for."""
    for line in sections(options, Style()):
        print(line)
    return 0


def sections(options: argparse.Namespace, style: Style) -> Iterator[str]:
    """Yield the output, in order.

    Raises:
        ArgumentError: The op does not exist, has no kernels for the device, or cannot be planned.
    """
    if options.op is None:
        yield from op_list(style)
        return
    if options.op.endswith((".yaml", ".yml")):
        for position, record in enumerate(_loaded_records(options.op, options.name)):
            yield from ("",) if position else ()
            yield from _record_sections(record, options, style, options.op)
        return
    if options.name is not None:
        raise ArgumentError(f"show: {options.op} is no spec file (.yaml), so no second name may follow it")
    name = generated.ALIASES.get(options.op, options.op)
    if name.endswith("_") and name[:-1] in registry and name not in registry:
        name = name[:-1]
    if name not in registry or (name in public_functions() and not options.kernel and not options.source):
        function = public_functions().get(name)
        if function is None:
            hint = f"; an op of yours needs its file: weftgrad show FILE.yaml {name}"
            raise ArgumentError(f"show: there is no op named {name!r}{_suggestion(name)}{hint}")
        if options.kernel or options.source:
            raise ArgumentError(f"show: {name} is a function in Python; `weftgrad show {name}` lists the ops it calls")
        yield from function_page(name, function, style)
        return
    yield from _record_sections(registry[name], options, style)


def _loaded_records(path: str, name: str | None) -> list[OpRecord]:
    """Load a spec file and return the records of its ops, or of the op or derivative called `name`.

    Raises:
        ArgumentError: The file has no op of this name.
        SpecError: The file is wrong.
    """
    ops.load(path)
    names = [op.name for op in load_file(Path(path))]
    if name is None:
        return [registry[n] for n in names]
    if name not in names and name not in _derivatives(_derivatives(names)):
        raise ArgumentError(f"show: {path} has no op named {name!r}; it has {', '.join(names)}, and their derivatives")
    return [registry[name]]


def _derivatives(names: Sequence[str]) -> list[str]:
    """Return the names of ops, and of the ops that compute their gradients."""
    targets = [rule.op for name in names for rule in registry.gradients(registry[name]).values() if rule.op]
    return list(dict.fromkeys((*names, *targets)))


def _record_sections(record: OpRecord, options: argparse.Namespace, style: Style, spec_file: str = "") -> Iterator[str]:
    """Yield what the options ask for of one op. spec_file: the file with its spec, if it is a user's."""
    if options.kernel:
        yield from kernel_sections(record, options, style)
    elif options.source:
        yield _all_schedules(record, options.target, style)
    else:
        yield from op_page(record, style, spec_file)


def _suggestion(name: str) -> str:
    names = [record.name for record in registry if "_grad_" not in record.name or "_grad_" in name]
    close_names = difflib.get_close_matches(name, [*names, *public_functions()], 3)
    return f"; did you mean {', '.join(dict.fromkeys(close_names))}?" if close_names else ""


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape such as 64x1000")
    return shape


def _all_schedules(record: OpRecord, target: str, style: Style) -> str:
    """Return the text of all schedules for a target, with macros and conditionals as in the generated file."""
    text = record.texts.get(target)
    language, comment = _LANGUAGES[target]
    if text is None:
        targets = ", ".join(record.texts) or f"none, as it is a {record.kind} op"
        raise ArgumentError(f"show: {record.name} has no kernels for {target}; there are {targets}")
    functions = f"\n{comment} with the functions {', '.join(text.functions)}" if text.functions else ""
    return style.highlight(language, text.source.rstrip() + functions)


def kernel_sections(record: OpRecord, options: argparse.Namespace, style: Style) -> Iterator[str]:
    """Yield the kernels of a call, each after two lines of comment."""
    if not record.texts:
        raise ArgumentError(f"show: {record.name} has no kernel: it is a {record.kind} op")
    device, label = find_device(options.device)
    driver = device.driver
    shape = "x".join(map(str, options.shape))
    steps = first_launches(planned_steps(record, device, dtypes.parse(options.dtype), options.schedule, options.shape))
    if not steps:
        raise ArgumentError(f"show: a call of {record.name} on {shape} launches no kernel")
    language, comment = _LANGUAGES[driver.target]
    if options.source:
        instances = [step.instance for step in steps]
        if driver.target == "triton":
            whole = "\n".join(dict.fromkeys(map(triton_source.module_text, instances)))
        else:
            caps = driver.capabilities
            is_c = device.type == "cpu"
            whole = program.source(instances, caps.builtins and not is_c, caps.fp64 or is_c, as_c=is_c)
        yield style.highlight(language, whole)
        return
    for step in steps:
        text = kernel_text(step, device)
        size = " x ".join(map(str, step.global_size))
        unit = target_named(driver.target).work_unit
        example = "" if options.schedule else f" for operands of {shape}"
        yield style("comment", f"{comment} {text.symbol} on {label}, {options.dtype}: {size} {unit}{example}")
        if text.constants:
            yield style("comment", f"{comment} constants: {text.constants}")
        if options.functions and text.functions.strip():
            yield style.highlight(language, text.functions.rstrip() + "\n")
        elif text.function_names:
            yield style("comment", f"{comment} calls {', '.join(text.function_names)} (--functions prints them)")
        yield style.highlight(language, text.kernel.rstrip() + "\n")
