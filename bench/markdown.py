"""Reports as Markdown, to paste into a document: one table per device and suite, without empty columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from . import babelstream, summary, tritonbench
from .colours import printable
from .page import machines, roof_text
from .roofline import Roof, rates, roofs, share
from .rows import Entry, NumberFact, Section, number, sections, throughput_text
from .step_tables import in_bytes
from .steps import curves, timelines

if TYPE_CHECKING:
    from .report_types import Report

__all__ = ["as_markdown"]

_Column = tuple[str, list[str]]


def as_markdown(reports: Sequence[Report], entries: Sequence[Entry]) -> str:
    """Return reports as Markdown: machine, tables of rows, rooflines, steps. A missed aim is bold."""
    blocks: list[list[str]] = []
    for facts in machines(reports):
        blocks.append([f"**{_safe(facts['caption'])}**"])
        blocks.append([f"- {_safe(str(name))}: {_safe(str(value))}" for name, value in facts["facts"]])
    measured = roofs(entries)
    for section in sections(entries):
        blocks += [[f"### {_safe(section.title)}"], _table(section, measured.get(section.hardware))]
    blocks += [[f"{_safe(name)}, measured: {_safe(roof_text(roof))}"] for name, roof in measured.items()]
    for suite in (babelstream, tritonbench):
        if lines := suite.table_lines(entries):
            blocks.append(["```text", *map(_fenced, lines[1:]), "```"])
    if marks := summary.legend(entries):
        blocks.append([f"- {_safe(line)}" for line in marks])
    if means := summary.lines(entries):
        blocks.append([_safe(means[0].strip()), "", *(f"- {_safe(line.strip())}" for line in means[1:])])
    blocks += [_steps(report) for report in reports if report.get("curves") or report.get("timelines")]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _table(section: Section, roof: Roof | None) -> list[str]:
    rows = section.entries
    columns: list[_Column] = [("row", [_safe(e.name) for e in rows])]

    def column(title: str, cell: Callable[[Entry], str | None]) -> None:
        """Add a column unless all its cells are empty."""
        cells = [cell(e) or "" for e in rows]
        if any(cells):
            columns.append((title, [_safe(text) for text in cells]))

    def fact(title: str, name: NumberFact, unit: Callable[[float], str] = number) -> None:
        column(title, lambda e: None if (value := e.number(name)) is None else unit(value))

    def accuracy(title: str, measure: Literal["abs", "rel", "ulp"]) -> None:
        column(title, lambda e: None if (value := e.accuracy(measure)) is None else f"{value:.2g}")

    def resident(title: str, contender: str) -> None:
        column(title, lambda e: None if (size := e.resident.get(contender)) is None else in_bytes(size))

    def throughputs(contender: str) -> None:
        column(f"{contender} throughput".strip(), lambda e: throughput_text(e.throughput(contender), e.unit))

    def ratios_to(peer: str) -> None:
        def least_ratio(entry: Entry) -> str | None:
            ratio, mark = entry.ratio(peer), "~" * bool(entry.peer_doubts(peer))
            return mark + bold(f"{ratio[0]:.2f}", peer in entry.missed) if ratio else None

        column(f"{peer} / ours", least_ratio)
        column("(medians)", lambda e: f"{r[1]:.2f}" if (r := e.ratio(peer)) else None)

    def microseconds(entry: Entry, seconds: float) -> str:
        return bold(number(seconds * 1e6), entry.limits is not None and bool(entry.missed))

    def bold(text: str, marked: bool) -> str:
        return f"**{text}**" if marked else text

    column("min µs", lambda e: "~" * bool(e.doubts) + microseconds(e, e.time["least"]) if e.time else None)
    column("median µs", lambda e: microseconds(e, e.time["median"]) if e.time else None)
    column("GB/s", lambda e: number(rate * 1e-9) if (rate := rates(e)[0]) else None)
    column("GFLOP/s", lambda e: number(rate * 1e-9) if (rate := rates(e)[1]) else None)
    for name in ("", *section.peers):
        throughputs(name)
    column("of roofline", lambda e: None if (part := share(e, roof)) is None else str(part))
    column("of a copy", lambda e: bold(number(e.copy[0]), "copy" in e.missed) if e.copy else None)
    for peer in section.peers:
        ratios_to(peer)
    column("aim", _aim)
    column("error", lambda e: None if e.error is None else f"{e.error:.1g}")
    accuracy("abs error", "abs")
    accuracy("rel error", "rel")
    accuracy("ulp", "ulp")
    fact("host µs", "host_us")
    fact("cold ms", "cold_ms")
    fact("warm ms", "warm_ms")
    fact("peak", "peak_bytes", in_bytes)
    resident("resident", section.device)
    for peer in section.peers:
        resident(f"{peer} resident", peer)
    fact("driver allocs", "driver_allocations", "{:.0f}".format)
    column("kernels", lambda e: ", ".join(map(printable, e.facts.get("schedule") or ())))
    column("notes", lambda e: e.remarks)
    heads, cells = zip(*columns, strict=True)
    numbers = {"row", "aim", "kernels", "notes"}
    rule = ["---" if head in numbers else "---:" for head in heads]
    return [_line(heads), _line(rule), *map(_line, zip(*cells, strict=True))]


def _aim(entry: Entry) -> str:
    if entry.limits:
        return " / ".join(number(limit * 1e6) for limit in entry.limits) + " µs"
    return ", ".join(f"{name} {aim:g}" for name, aim in entry.aims.items())


def _steps(report: Report) -> list[str]:
    """Return one line per timeline, and the memory of the first and the last step of each curve."""
    lines = [f"- {_safe(line.name)} on {_safe(line.device)}: {_safe(line.summary)}" for line in timelines(report)]
    for curve in curves(report):
        if curve.steps:
            first, last = curve.steps[0], curve.steps[-1]
            segment_counts = [step["driver_allocations"] for step in (first, last)]
            lines.append(
                f"- {_safe(curve.name)} on {_safe(curve.device)}: peak {in_bytes(last['peak'])}, held "
                f"{in_bytes(last['reserved'])}; segments from the driver: {segment_counts[0]} in the first step, "
                f"{segment_counts[1]} in step {len(curve.steps)}"
            )
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _fenced(line: str) -> str:
    """Return a line of a code block, which no name may end."""
    return line.replace("`", "'")


def _safe(text: str) -> str:
    """Escape text so that it stays in its cell and is not read as markup."""
    for mark in ("\\", "|", "<", "`", "_"):
        text = text.replace(mark, f"\\{mark}")
    return text
