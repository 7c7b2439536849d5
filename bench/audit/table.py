"""Audits as lines of a terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from ...runtime.triton.compile import compiler_version
from ..number_text import number
from .auditing import Row
from .estimate import CallFigures, LaunchFigures
from .machines import MACHINES

__all__ = ["as_json", "as_markdown", "explanation", "launch_lines", "line", "write_markdown"]

BEGIN, END = "<!-- weftgrad audit: begin -->", "<!-- weftgrad audit: end -->"
_CASE_WIDTH = 52


def line(row: Row) -> str:
    """Return a row for the terminal."""
    name = f"{row.case:{_CASE_WIDTH}}  {row.machine:6}"
    if row.figures is None:
        return f"{name}  fails: {_one_line(row.error, 160)}"
    figures, slowest = row.figures, row.figures.slowest
    measured = "" if figures.measured is None else f", measured {_micro(figures.measured)}"
    measured += "" if figures.peer is None else f" and {_micro(figures.peer)} in torch"
    return (
        f"{name}  {figures.share:4.0%} of its limit, by {figures.bound}: {_micro(figures.seconds)} µs estimated"
        f"{measured}, {_micro(figures.limit)} at least; {_count(len(figures.launches), 'launch')}, {slowest.kernel}"
        f"{' MISSES ITS BAR' if row.missed else ''}{f'; {_one_line(row.error, 160)}' if row.error else ''}"
    )


def _one_line(text: str, length: int) -> str:
    return " ".join(text.split())[:length]


def launch_lines(figures: CallFigures) -> list[str]:
    """Return a line for each launch of a call."""
    return [
        f"    {launch.kernel} {launch.tile}: {launch.programs} programs of {launch.warps} warps, {launch.registers} "
        f"registers, {launch.spills} spilled, {launch.shared} B shared, occupancy {launch.occupancy:.2f}; "
        f"{launch.tensor or 'no matrix instructions'}; loads of {_widths(launch) or 'nothing'}; hot loop "
        f"{launch.hot_instructions} instructions; µs: "
        + ", ".join(f"{name} {_micro(seconds)}" for name, seconds in launch.times.items())
        + " (depends on data)" * launch.depends_on_data
        for launch in figures.launches
    ]


def explanation(rows: Sequence[Row]) -> list[str]:
    """Return the cases that miss a bar or fail, with the reasons."""
    return [f"{row.case} on {row.machine} {reason}" for row in rows for reason in row.missed]


def as_json(rows: Iterable[Row]) -> str:
    """Return all figures; times in seconds, sizes in bytes."""
    records = []
    for row in rows:
        record = asdict(row)
        if row.figures is not None:
            figures = row.figures
            record["figures"] |= {
                "seconds": figures.seconds, "moved": figures.moved, "share": figures.share, "bound": figures.bound,
            }  # fmt: skip
        records.append(json.dumps(record))
    return "[\n" + ",\n".join(records) + "\n]\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the table of the first machine, and a table of the shares on all machines if there are several."""
    machines = list(dict.fromkeys(row.machine for row in rows))
    is_measured = any(row.figures and row.figures.measured for row in rows)
    blocks = [
        f"Estimated for {_describe(machines[0])}, from kernels compiled by Triton {compiler_version()}. "
        + ("Only `measured` and `torch` are times on the GPU." if is_measured else "No figure was measured."),
    ]
    for group in dict.fromkeys(row.group for row in rows):
        blocks += [f"**{group.capitalize()}**", _group_table([r for r in rows if r.group == group and
                                                               r.machine == machines[0]])]  # fmt: skip
    if len(machines) > 1:
        blocks += ["**Estimated share of the limit, by machine**", _share_table(rows, machines)]
        blocks.append("\n".join(f"- {_describe(name)}" for name in machines))
    return "\n\n".join(blocks) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """Write a file; in a file that has the two marker comments, replace what is between them only."""
    if path.is_file():
        old = path.read_text(encoding="utf-8")
        if BEGIN in old and END in old:
            before, rest = old.split(BEGIN, 1)
            text = f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END, 1)[1]}"
    path.write_text(text, encoding="utf-8")


def _describe(name: str) -> str:
    machine = MACHINES[name]
    return (
        f"{name} ({machine.target}, {machine.cores} cores, {machine.bandwidth / 1e12:.3g} TB/s, "
        f"{machine.half_flops / 1e12:.4g} TFLOP/s in half precision)"
    )


def _group_table(rows: Sequence[Row]) -> str:
    has_measured = any(row.figures and row.figures.measured for row in rows)
    has_peer = any(row.figures and row.figures.peer for row in rows)
    titles = ["call", "launches", "MB moved / least", "slowest kernel, tile, warps", "registers, spills, shared KiB",
              "occupancy", "matrix instruction", "loads, B", "hot loop", "issue, µs", "memory", "tensor", "cache",
              "exchange", "latency", "estimate, µs", *["measured, µs"] * has_measured, *["torch, µs"] * has_peer,
              "limit, µs", "bound", "share"]  # fmt: skip
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in rows:
        if row.figures is None:
            lines.append(f"| {row.case} | fails: {_one_line(row.error, 80)} |" + " |" * (len(titles) - 2))
            continue
        figures, slowest = row.figures, row.figures.slowest
        cells = [
            row.case, str(len(figures.launches)), f"{_mega(figures.moved)} / {_mega(figures.least)}",
            f"`{slowest.kernel}` {slowest.tile.replace('x', '×')}, {slowest.warps}",
            f"{slowest.registers}, {slowest.spills}, {number(slowest.shared / 1024)}", f"{slowest.occupancy:.2f}",
            slowest.tensor.replace("x", "×") or "-", _widths(slowest) or "-", str(slowest.hot_instructions),
            *(_micro(t) if t else "-" for t in (slowest.issue, slowest.memory, slowest.tensor_time, slowest.cache,
                                                slowest.exchange, slowest.latency)),
            _micro(figures.seconds),
            *[_micro(figures.measured) if figures.measured else ""] * has_measured,
            *[_micro(figures.peer) if figures.peer else ""] * has_peer, _micro(figures.limit),
            figures.bound, f"{figures.share:.2f}{'*' * any(x.depends_on_data for x in figures.launches)}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _share_table(rows: Sequence[Row], machines: Sequence[str]) -> str:
    lines = ["| call | " + " | ".join(machines) + " |", "|---" * (len(machines) + 1) + "|"]
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        text = "fails" if row.figures is None else f"{row.figures.share:.2f}"
        cells.setdefault(row.case, {})[row.machine] = text
    lines += [
        f"| {case} | " + " | ".join(by_machine.get(name, "") for name in machines) + " |"
        for case, by_machine in cells.items()
    ]
    return "\n".join(lines)


def _widths(launch: LaunchFigures) -> str:
    return ", ".join(str(width) if width else "TMA" for width in launch.widths)


def _micro(seconds: float) -> str:
    return number(seconds * 1e6)


def _mega(nbytes: int) -> str:
    return number(nbytes / 1e6)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 'es'}"
