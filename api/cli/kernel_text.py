"""The kernels that a call runs, as `weftgrad show --kernel` prints them: conditionals and macros resolved.

The text is derived from what the runtime gives to the compiler: the instance's text and macros (`runtime.program`), or
for Triton its module and constants (`runtime.triton`). Compiled with the program's header, it is the same kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen import triton_branches
from ..codegen.c_layout import tidy
from ..codegen.loader import op_from_mapping
from ..codegen.math_library import ANY_LANE_MACROS
from ..codegen.preprocessor import Preprocessor, macros_of
from ..runtime import program
from ..runtime.backends import processor
from ..runtime.backends.protocol import Capabilities, Instance, Step
from ..runtime.device import Device
from ..runtime.dispatch import plan_for
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.records import OpRecord
from ..runtime.triton import source as triton_source
from ..runtime.triton.signature import signature
from .calls import op_calls
from .prebuild import play
from .samples import arguments, capture_steps
from .scenes import scenes

__all__ = ["KernelText", "kernel_text", "planned_steps", "schedules_of"]

SHAPE = (64, 1000)
_ENTRY = re.compile(r"\bkernel void NAME\((\w+)\)|^@triton\.jit\s+def (\w+)\([^)]*\):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as the compiler gets it.

    Attributes:
        language: `c` (OpenCL C) or `python` (Triton).
        name: The kernel's name in the text.
        symbol: The kernel's name in the program.
        kernel: The text of the kernel and of the functions that are its own.
        functions: The text of the math and helper functions that it calls.
        function_names: Their names.
        constants: For Triton, the values of its constexpr parameters and the compiler's options.
    """

    language: str
    name: str
    symbol: str
    kernel: str
    functions: str
    function_names: tuple[str, ...]
    constants: str = ""


# Planning


def planned_steps(
    record: OpRecord, device: Device, dtype: DType, schedule: str = "", shape: tuple[int, ...] = SHAPE
) -> list[Step]:
    """Return the launches of a call on contiguous tensors of `shape` and `dtype`.

    Args:
        record: The op.
        device: The device.
        dtype: The dtype of value operands.
        schedule: Return instead the first launch of this schedule in calls of many layouts.
        shape: The shape of operands whose shape the op does not fix.

    Raises:
        ArgumentError: No call can be planned, or none of them uses the schedule.
    """
    if not schedule:
        try:
            op = op_from_mapping(record.spec)
            values = arguments(op, device, dtype, np.random.default_rng(0), shape=shape)
            operands: list[Any] = []
            for p in op.operands:
                operands += values[p.name] if p.role == "list" else [values[p.name]]
            return list(plan_for(record, operands, tuple(values[n] for n in record.statics)).steps)
        except (WeftgradError, KeyError, StopIteration, TypeError, ValueError) as error:
            reason = str(error)
    with capture_steps(device) as steps:
        play(op_calls(record, device, [dtype]))
        if schedule and not any(_schedule(record, s.instance) == schedule for s in steps):
            play(scenes(device, [dtype], [record.name]))
    own_steps = [s for s in steps if _belongs(record, s.instance)]
    if not schedule:
        if not own_steps:
            raise ArgumentError(f"show: cannot plan a call of {record.name} with {dtype.name}: {reason}")
        return own_steps[:1]
    match = next((s for s in own_steps if _schedule(record, s.instance) == schedule), None)
    if match is None:
        names = ", ".join(dict.fromkeys(_schedule(record, s.instance) for s in own_steps)) or "none"
        raise ArgumentError(f"show: no call of {record.name} uses a schedule {schedule!r} there; used are: {names}")
    return [match]


def schedules_of(record: OpRecord, target: str) -> list[str]:
    """Return the names of the schedules that an op's text for a target has, in the order of the text."""
    text = record.texts.get(target)
    if text is None:
        return []
    names = [a or b for a, b in _ENTRY.findall(text.source)]
    if target == "triton":  # a kernel is a function that no other calls
        called = set(re.findall(r"\b(\w+)\(", re.sub(r"\bdef \w+\(", "", text.source)))
        names = [name for name in names if name not in called]
    return list(dict.fromkeys(_strip_prefix(name, record.name) for name in names))


def _belongs(record: OpRecord, instance: Instance) -> bool:
    return any(text.source == instance.text for text in record.texts.values())


def _schedule(record: OpRecord, instance: Instance) -> str:
    return _strip_prefix(instance.entry, record.name, instance.name)


def _strip_prefix(entry: str, *names: str) -> str:
    return next((entry.removeprefix(f"{name}_") for name in names if entry.startswith(f"{name}_")), entry)


# Text


def kernel_text(step: Step, device: Device) -> KernelText:
    """Return the text of a launch's kernel on a device."""
    driver: Any = device.driver
    if driver.target == "triton":
        return _triton_text(step)
    return opencl_text(step.instance, driver.capabilities, as_c=device.type == "cpu")


def opencl_text(instance: Instance, caps: Capabilities, as_c: bool) -> KernelText:
    """Return the text of an OpenCL C kernel. as_c: the compiler is clang for the device `cpu`."""
    sections = program.sections([instance], builtins=not as_c and caps.builtins, fp64=caps.fp64 or as_c)
    header = "\n".join(sections.header) + ANY_LANE_MACROS
    defines = {} if caps.ahead else {"WG_NO_AHEAD": "1"}
    if as_c:
        defines |= _predefined(caps)
    preprocessor = Preprocessor(macros_of(header), defines)
    functions = preprocessor.run("\n".join(sections.functions).replace(ANY_LANE_MACROS, ""))
    functions = "".join(f"#define {name} {value}\n" for name, value in preprocessor.required.items()) + functions
    preprocessor.required = {}
    kernel = preprocessor.run("\n".join(sections.kernels))
    kernel = kernel.replace("// Generated by `weftgrad generate`; do not edit.\n", "")
    kernel = kernel.partition("\n")[2] if kernel.startswith("// ---- ") else kernel
    required = [f"#define {name} {value}".replace("\n", "\\\n") + "\n" for name, value in preprocessor.required.items()]
    symbol = program.entry_name(instance)
    suffix = symbol.removeprefix(instance.entry)
    text = "".join(required) + tidy(kernel.replace(suffix, ""))
    names = sorted(set(re.findall(r"\bwg_\w+(?=\()", text)))
    return KernelText("c", instance.entry, symbol, text, functions.replace(suffix, ""), tuple(names))


def _predefined(caps: Capabilities) -> dict[str, str]:
    """Return the macros of clang that kernels ask for, for the flags that `cpu` compiles with."""
    return {"__AVX512F__": "1"} if processor.instruction_set(caps.lanes) == "avx512" else {}


def _triton_text(step: Step) -> KernelText:
    instance = step.instance
    typed = signature(step, aligned=True)
    kernel = triton_branches.resolve(instance.text, instance.entry, typed.constants)
    module = triton_source.module_text(instance)
    helpers = triton_branches.called_names(kernel) & set(re.findall(r"^def (\w+)", module, re.MULTILINE))
    helpers -= set(re.findall(r"^def (\w+)", kernel, re.MULTILINE))
    functions = "\n\n\n".join(triton_branches.resolve(module, name, {}).strip() for name in sorted(helpers))
    values = {**typed.constants, **typed.options}
    constants = ", ".join(f"{name}={value}" for name, value in values.items())
    return KernelText("python", instance.entry, instance.entry, kernel, functions, tuple(sorted(helpers)), constants)


def distinct(steps: Sequence[Step]) -> list[Step]:
    """Return the first launch of each kernel, in order."""
    return list({step.instance: step for step in reversed(steps)}.values())[::-1]
