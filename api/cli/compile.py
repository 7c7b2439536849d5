"""`weftgrad compile`: compiles every generated Triton kernel for GPUs that need not be there, and tells what came out.

A kernel is compiled once a schedule, for a call that the schedule is meant for, with aligned operands. The table names
registers and spilled bytes a thread and shared memory a block; `weftgrad compile --json FILE` keeps all of it, with
what the machine code (PTX) does that its author may not have meant: approximate divisions, narrow loads.
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
from typing import Any

from ..runtime import dtypes
from ..runtime.errors import CompileError
from .workers import spread

__all__ = ["TARGETS", "Row", "compiled", "measured", "place_like", "planned", "register", "table"]

# What devices of each target offer a kernel: architecture, multiprocessors, bytes of shared memory a block.
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
_BY_TARGET = ("contraction", "custom")  # kinds whose schedules depend on the architecture
_SHARED = ("sort", "search", "pad", "pairs", "ctc", "sampling")  # names of kernels that several ops share


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel compiled for one target, or the reason why it was not.

    registers and spills: a thread (bytes on NVIDIA, registers on AMD). shared: bytes a block; limit: what the
    target has. approximate: inexact instructions. load: bytes of the widest load from global memory a thread; 0 if
    there is none, or none is known. seconds: that compiling took.
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
    def good(self) -> bool:
        """Compiled, without spills, within the target's shared memory."""
        return not self.error and not self.spills and self.shared <= self.limit


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser(
        "compile",
        help="compile Triton kernels for GPUs that need not be there",
        description="Compiles every generated Triton kernel for each target, and prints registers, spills and memory.",
    )
    made.add_argument("--ops", nargs="*", metavar="OP", help="which ops (default: all)")
    made.add_argument("--targets", nargs="*", default=list(TARGETS), choices=TARGETS, help="(default: all)")
    made.add_argument("--dtype", default="float32", help="value type (default: float32)")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all rows to FILE")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile, print the table; 1 if a kernel is not good."""
    begun = time.perf_counter()
    rows = list(compiled(options.targets, options.ops, options.dtype, options.jobs))
    print(table(rows, options.targets))
    bad = [r for r in rows if not r.good]
    print(f"{len(rows)} compilations in {time.perf_counter() - begun:.0f} s; {len(bad)} not good")
    for row in bad[:20]:
        print(f"  {row.kernel} for {row.target}: {row.error or f'{row.spills} spilled, {row.shared} bytes shared'}")
    if options.json:
        text = ",\n".join(json.dumps(asdict(row)) for row in rows)
        options.json.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return 1 if bad else 0


def compiled(
    targets: Sequence[str],
    ops: Sequence[str] | None = None,
    dtype: str = "float32",
    jobs: int = 1,
    *,
    in_turn: bool = False,
) -> Iterable[Row]:
    """A row for each kernel and target, in order; `jobs` processes compile.

    in_turn: kernels that are planned alike for every target are compiled for some, in turn: those of one pattern that
    differ by their formula alone for one each, others for every second; of those of second derivatives every third.
    """
    found = planned(targets, ops, dtype)
    work = [(target, step) for target, steps in found.items() for step in steps]
    if in_turn:
        turn: dict[str, Sequence[str]] = {}
        for of_a_formula in (True, False):
            alike = {s.instance.entry for _, s in work if not _differs(s) and _of_a_formula(s) is of_a_formula}
            every = len(targets) if of_a_formula else 2
            turn |= {entry: targets[i % every :: every] for i, entry in enumerate(sorted(alike))}
        second = [entry for entry in sorted(turn) if entry.count("_grad_") > 1]
        turn |= {entry: () for i, entry in enumerate(second) if i % 3}
        work = [(target, step) for target, step in work if target in turn.get(step.instance.entry, targets)]
    if jobs <= 1:
        yield from (measured(*each) for each in work)
        return
    yield from spread(_packed, work, jobs, 8)


def _packed(work: tuple[str, Any]) -> Row:
    return measured(*work)


def planned(targets: Sequence[str], ops: Sequence[str] | None, dtype: str) -> dict[str, list[Any]]:
    """For each target, one step of every generated kernel of `ops` (None: all): the largest that was planned."""
    everywhere: dict[str, Any] = {}
    found: dict[str, list[Any]] = {}
    for target in targets:
        own = _steps(target, ops, dtype, None if not found else _BY_TARGET)
        everywhere = {**everywhere, **own}
        found[target] = [everywhere[k] for k in sorted(everywhere) if k in own or not _differs(everywhere[k])]
    return found


def _of_a_formula(step: Any) -> bool:
    from ..runtime.records import registry

    name = step.instance.name
    return name in registry and (registry[name].kind in ("pointwise", "random") or "_grad_" in name)


def _differs(step: Any) -> bool:
    return step.instance.name in ("contraction", "convolution", "attention")


def _steps(target: str, ops: Sequence[str] | None, dtype: str, kinds: Sequence[str] | None) -> dict[str, Any]:
    """By kernel, the largest step that calls of ops of `kinds` (None: all) launch on a device like `target`."""
    from .._generated.records import NAMES
    from ..runtime.records import registry
    from .calls import calls_of
    from .prebuild import play
    from .samples import collecting
    from .scenes import scenes

    place = place_like(target)
    wanted = [dtypes.parse(dtype)]
    with collecting(place) as steps:
        for name in sorted(NAMES if ops is None else ops):
            record = registry[name]
            if record.spec and record.kind not in ("view", "composite") and (kinds is None or record.kind in kinds):
                play(calls_of(record, place, wanted))
        if kinds is None:
            play(scenes(place, wanted, ops))
    found: dict[str, Any] = {}
    for step in steps:
        instance = step.instance
        if instance.name not in NAMES and instance.name not in _SHARED and not _differs(step):
            continue  # of a derivative that was derived in this process
        kept = found.get(instance.entry)
        if kept is None or step.work > kept.work:
            found[instance.entry] = step
    return found


def place_like(target: str) -> Any:
    """A device of its own on which kernels can only be planned: it claims to be one of `target`."""
    from ..runtime.backends.interpreter import InterpreterDriver
    from ..runtime.device import Device

    place = Device("interpreter", None)
    place._driver = InterpreterDriver(place, f"{TARGETS[target]},block=1024")  # type: ignore[assignment]
    return place


def measured(target: str, step: Any) -> Row:
    """Compile one step's kernel for `target`, for aligned operands."""
    from ..runtime.triton.compile import Target, compile_for

    limit = int(re.search(r"local_memory=(\d+)", TARGETS[target])[1])  # type: ignore[index]
    kernel, begun = step.instance.entry, time.perf_counter()
    try:
        made = compile_for(step, True, Target.named(target))
    except CompileError as error:
        return Row(kernel, target, limit=limit, error=str(error))
    ptx = made.asm.get("ptx", "")
    widths = [int(count or 1) * int(bits) // 8 for count, bits in _LOADS.findall(ptx)]
    return Row(
        kernel, target, made.registers, made.spills, made.binary.shared, limit,
        tuple(sorted(set(_APPROXIMATE.findall(ptx)))), max(widths, default=0), round(time.perf_counter() - begun, 3),
    )  # fmt: skip


def table(rows: Iterable[Row], targets: Sequence[str]) -> str:
    """One line a kernel: registers, and if any, spills and shared memory, for each target."""
    by_kernel: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_kernel.setdefault(row.kernel, {})[row.target] = row
    wide = max(map(len, by_kernel), default=6)
    lines = [f"{'kernel':{wide}}  " + "".join(f"{t:>24}" for t in targets)]
    lines += [f"{name:{wide}}  " + "".join(f"{_cell(own, t):>24}" for t in targets) for name, own in by_kernel.items()]
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
