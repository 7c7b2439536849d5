"""`weftgrad compile`: compile every generated Triton kernel for GPUs that need not be present, and print statistics.

Each schedule of a kernel is compiled once, for a call that the schedule is meant for, with aligned operands. The table
shows registers and spilled bytes per thread, and shared memory per block. `weftgrad compile --json FILE` writes these
and properties of the PTX that the kernel's author may not have intended: approximate divisions and narrow loads.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .._generated.records import NAMES
from ..runtime import dtypes
from ..runtime.backends.protocol import Step
from ..runtime.device import Device, create_device
from ..runtime.errors import CompileError
from ..runtime.records import registry
from .calls import op_calls
from .function_calls import function_calls
from .prebuild import play
from .samples import capture_steps
from .workers import map_in_processes

__all__ = ["TARGETS", "Row", "add_options", "compile_kernels", "compile_step", "plan_steps", "planning_device", "table"]

# The capabilities of each target: architecture, multiprocessors, bytes of shared memory per block.
TARGETS = {
    "sm_80": "sm=80,cores=108,local_memory=166912",
    "sm_90": "sm=90,cores=132,local_memory=232448",
    "sm_100": "sm=100,cores=148,local_memory=232448",
    "gfx942": "sm=0,cores=304,local_memory=65536",
}
_APPROXIMATE = re.compile(
    r"\b(div\.approx|div\.full|sqrt\.approx|rsqrt\.approx|lg2\.approx|sin\.approx|cos\.approx|tanh\.approx)"
)
_LOADS = re.compile(r"ld\.global\S*?(?:\.v(\d))?\.b(\d+)")
_TARGET_DEPENDENT_KINDS = ("contraction", "custom")  # kinds whose schedules depend on the architecture
_SHARED_KERNELS = (
    "sort",
    "search",
    "pad",
    "pairs",
    "ctc",
    "sampling",
    "factorization",
    "linear_solve",
)  # names of kernels that several ops share


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel compiled for one target, or the reason why it was not.

    Attributes:
        kernel: The kernel's name.
        target: The name of the target, a key of `TARGETS`.
        registers: Registers per thread.
        spills: Spills per thread, in bytes on NVIDIA and in registers on AMD.
        shared: Bytes of shared memory per block.
        limit: Bytes of shared memory per block that the target has.
        approximate: The approximate instructions in the PTX.
        load: Bytes of the widest global load per thread; 0 if there is none or it is unknown.
        seconds: Compile time.
        error: The compiler's message, or "".
    """

    kernel: str
    target: str
    registers: int = 0
    spills: int = 0
    shared: int = 0
    limit: int = 0
    approximate: tuple[str, ...] = ()
    load: int = 0
    seconds: float = 0.0
    error: str = ""

    @property
    def is_good(self) -> bool:
        """True if it compiled, without spills, within the target's shared memory."""
        return not self.error and not self.spills and self.shared <= self.limit


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Compiles every generated Triton kernel for each target, and prints registers, spills and memory."
    )
    command.add_argument("--ops", nargs="*", metavar="OP", help="which ops (default: all)")
    command.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS, help="(default: all)")
    command.add_argument("--dtype", default="float32", help="value type (default: float32)")
    command.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="number of processes (default: one per core)"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write all rows to FILE")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile and print the table. Return 1 if a kernel fails, spills, or needs too much shared memory."""
    start = time.perf_counter()
    rows = list(compile_kernels(options.targets, options.ops, options.dtype, options.jobs))
    print(table(rows, options.targets))
    bad = [r for r in rows if not r.is_good]
    print(f"{len(rows)} compilations in {time.perf_counter() - start:.0f} s; {len(bad)} failed or exceed a limit")
    for row in bad[:20]:
        print(f"  {row.kernel} for {row.target}: {row.error or f'{row.spills} spilled, {row.shared} bytes shared'}")
    if options.json:
        text = ",\n".join(json.dumps(asdict(row)) for row in rows)
        options.json.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return 1 if bad else 0


def compile_kernels(
    targets: Sequence[str],
    ops: Sequence[str] | None = None,
    dtype: str = "float32",
    jobs: int = 1,
    *,
    alternate_targets: bool = False,
) -> Iterable[Row]:
    """Yield a row for each kernel and target, in order.

    Args:
        targets: Keys of `TARGETS`.
        ops: The ops whose kernels are compiled; None: all.
        dtype: The dtype of value tensors.
        jobs: The number of compiling processes.
        alternate_targets: Save time in tests by compiling kernels that have the same plan on every target for some
            targets only. Kernels that differ by their formula alone are compiled for one target each, others for every
            second target. Of kernels of second derivatives and of summed derivatives, only every third is compiled.
    """
    steps_by_target = plan_steps(targets, ops, dtype)
    work = [(target, step) for target, steps in steps_by_target.items() for step in steps]
    if alternate_targets:
        targets_by_kernel: dict[str, Sequence[str]] = {}
        for is_formula in (True, False):
            kernels = {
                s.instance.entry for _, s in work if not _depends_on_target(s) and _is_formula_kernel(s) is is_formula
            }
            stride = len(targets) if is_formula else 2
            targets_by_kernel |= {entry: targets[i % stride :: stride] for i, entry in enumerate(sorted(kernels))}
        derived = [entry for entry in sorted(targets_by_kernel) if re.search("_grad_.*(_grad_|_sum_)", entry)]
        targets_by_kernel |= {entry: () for i, entry in enumerate(derived) if i % 3}
        work = [
            (target, step) for target, step in work if target in targets_by_kernel.get(step.instance.entry, targets)
        ]
    if jobs <= 1:
        yield from (compile_step(*pair) for pair in work)
        return
    yield from map_in_processes(_compile_pair, work, jobs, 8)


def _compile_pair(work: tuple[str, Step]) -> Row:
    return compile_step(*work)


def plan_steps(targets: Sequence[str], ops: Sequence[str] | None, dtype: str) -> dict[str, list[Step]]:
    """Return for each target the largest planned step of every generated kernel of `ops` (None: all)."""
    all_steps: dict[str, Step] = {}
    steps_by_target: dict[str, list[Step]] = {}
    for target in targets:
        target_steps = _steps(target, ops, dtype, None if not steps_by_target else _TARGET_DEPENDENT_KINDS)
        all_steps = {**all_steps, **target_steps}
        steps_by_target[target] = [
            all_steps[k] for k in sorted(all_steps) if k in target_steps or not _depends_on_target(all_steps[k])
        ]
    return steps_by_target


def _is_formula_kernel(step: Step) -> bool:
    name = step.instance.name
    return name in registry and (registry[name].kind in ("pointwise", "random") or "_grad_" in name)


def _depends_on_target(step: Step) -> bool:
    return step.instance.name in ("contraction", "convolution", "attention")


def _steps(target: str, ops: Sequence[str] | None, dtype: str, kinds: Sequence[str] | None) -> dict[str, Step]:
    """Return for each kernel the largest step that calls of ops of `kinds` (None: all) launch on `target`."""
    device = planning_device(target)
    value_dtypes = [dtypes.parse(dtype)]
    with capture_steps(device) as steps:
        for name in sorted(NAMES if ops is None else ops):
            record = registry[name]
            if record.spec and record.kind not in ("view", "composite") and (kinds is None or record.kind in kinds):
                play(op_calls(record, device, value_dtypes))
        if kinds is None:
            play(function_calls(device, value_dtypes, ops))
    largest: dict[str, Step] = {}
    for step in steps:
        instance = step.instance
        if instance.name not in NAMES and instance.name not in _SHARED_KERNELS and not _depends_on_target(step):
            continue  # the kernel of a derivative that was derived at run time
        previous = largest.get(instance.entry)
        if previous is None or step.work > previous.work:
            largest[instance.entry] = step
    return largest


def planning_device(target: str) -> Device:
    """Return a device with the capabilities of `target`, on which calls can be planned but not run."""
    from ..runtime.backends.interpreter import InterpreterDriver  # lazy: start-up

    device = create_device("interpreter")
    device._driver = InterpreterDriver(device, f"{TARGETS[target]},block=1024")
    return device


def compile_step(target: str, step: Step) -> Row:
    """Compile the kernel of one step for `target`, assuming aligned operands."""
    from ..runtime.triton.compile import Target, compile_for  # lazy: start-up

    limit = int(dict(field.split("=") for field in TARGETS[target].split(","))["local_memory"])
    kernel, start = step.instance.entry, time.perf_counter()
    try:
        binary = compile_for(step, True, Target.named(target))
    except CompileError as error:
        return Row(kernel, target, limit=limit, error=str(error))
    ptx = binary.asm.get("ptx", "")
    widths = [int(count or 1) * int(bits) // 8 for count, bits in _LOADS.findall(ptx)]
    return Row(
        kernel, target, binary.registers, binary.spills, binary.binary.shared, limit,
        tuple(sorted(set(_APPROXIMATE.findall(ptx)))), max(widths, default=0), round(time.perf_counter() - start, 3),
    )  # fmt: skip


def table(rows: Iterable[Row], targets: Sequence[str]) -> str:
    """Return the table: one line per kernel with registers, spills and shared memory for each target."""
    by_kernel: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel, {})[row.target] = row
    name_width = max(map(len, by_kernel), default=6)
    lines = [f"{'kernel':{name_width}}  " + "".join(f"{t:>24}" for t in targets)]
    lines += [
        f"{name:{name_width}}  " + "".join(f"{_cell(target_rows, t):>24}" for t in targets)
        for name, target_rows in by_kernel.items()
    ]
    return "\n".join(lines)


def _cell(rows: Mapping[str, Row], target: str) -> str:
    row = rows.get(target)
    if row is None:
        return "-"
    if row.error:
        return "FAILED"
    parts = [f"{row.registers} regs"]
    if row.spills:
        parts.append(f"{row.spills} SPILLED")
    if row.shared:
        parts.append(f"{row.shared / 1024:.3g} KiB")
    return ", ".join(parts)
