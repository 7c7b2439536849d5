"""A report as one self-contained HTML page: style, script and plots are embedded, and nothing is loaded from a network.

Names come from files and drivers, so the template escapes all text, and the page's content security policy allows only
its own script and style, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import weftgrad as wg

from . import babelstream, overview, summary, tritonbench
from .colours import printable
from .roofline import Roof, rates, roofs, share
from .rows import (
    Entry,
    NumberFact,
    Section,
    device_labels,
    hardware_names,
    machine_key,
    number,
    sections,
    suite_of,
    throughput_text,
)
from .step_tables import in_bytes, step_tables
from .step_tables import number_cell as _number
from .step_tables import text_cell as _text

if TYPE_CHECKING:
    from .report_types import Cell, Column, DeviceFacts, MachineFacts, Report, Table, TableRow

__all__ = ["html", "machine_facts", "machines", "roof_text", "table"]

_FOLDER = Path(__file__).parent / "html"


def html(reports: Sequence[Report], entries: Sequence[Entry], plots: Mapping[str, str] | None) -> str:
    """Return the page. plots: SVG text by title, or None if matplotlib is missing."""
    import jinja2  # lazy: start-up

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("report.css", "report.js.j2"))
    roof_by_hardware = roofs(entries)
    labels = device_labels(entries)
    merged_table = overview.table(entries)
    tables: list[Table] = [] if merged_table is None else [merged_table]
    for section in sections(entries):
        # Devices of several machines may have the same name.
        tables.append({**table(section, roof_by_hardware.get(section.hardware)),
                       "device": labels[section.hardware, section.device]})  # fmt: skip
    tables += step_tables(reports)
    return environment.get_template("report.html.j2").render(
        title="weftgrad bench: " + ", ".join(_hardware(reports, entries)),
        style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), version=wg.__version__,
        means=[line.strip() for line in summary.lines(entries)], marks=summary.legend(entries),
        machines=machines(reports), panels=overview.panels(entries),
        known_tables=[
            {"title": suite.SUITE, "text": "\n".join(lines).strip()}
            for suite in (babelstream, tritonbench) if (lines := suite.table_lines(entries))
        ],
        roofs=[{"hardware": name, "text": roof_text(roof)} for name, roof in roof_by_hardware.items()],
        devices=[name for name in dict.fromkeys(table["device"] for table in tables) if name],
        groups=sorted({entry.group for entry in entries} | ({"steps"} if any(step_tables(reports)) else set())),
        tables=tables,
        plots=None if plots is None else [
            {"title": title, "data": base64.b64encode(svg.encode()).decode()} for title, svg in plots.items()
        ],
    )  # fmt: skip


def roof_text(roof: Roof) -> str:
    """`54.2 GB/s by 4096x1024 + row (cpu); fp32 358 GFLOP/s by NN 2048 (cpu), uncertain (under load: …)`."""
    limits = [(roof.bandwidth, "GB/s"), (roof.cache(), "GB/s in caches")]
    limits += [(best, f"GFLOP/s {kind}") for kind, best in roof.peaks.items()]
    texts = [
        f"{number(best.rate * 1e-9)} {unit} by {best.row}"
        + (f", uncertain ({'; '.join(best.doubts)})" if best.doubts else "")
        for best, unit in limits if best
    ]  # fmt: skip
    return "; ".join(texts) or "nothing that has bytes or operations"


def _hardware(reports: Sequence[Report], entries: Sequence[Entry]) -> list[str]:
    """Return the names of all devices, also for a report that has steps but no entries."""
    names = [e.hardware for e in entries] or [printable(d["name"]) for r in reports for d in r["machine"]["devices"]]
    return list(dict.fromkeys(names))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def machines(reports: Sequence[Report]) -> list[MachineFacts]:
    """Return the facts about each machine once, also if several reports are of it, then what differs between these."""
    by_machine: dict[tuple[str, ...], list[int]] = {}
    for index, report in enumerate(reports):
        by_machine.setdefault(machine_key(report["machine"]), []).append(index)
    names = hardware_names(reports)
    return [
        _facts_of_machine(
            ", ".join(dict.fromkeys(name for index in indices for name in names[index].values())),
            [machine_facts(reports[index]) for index in indices],
        )
        for indices in by_machine.values()
    ]


def _facts_of_machine(names: str, reports: Sequence[MachineFacts]) -> MachineFacts:
    """Return the facts that all reports of a machine share, and a fact of what differs for each report."""
    shared = [fact for fact in reports[0]["facts"] if all(fact in report["facts"] for report in reports)]
    own = []
    for report in reports:
        text = "; ".join(f"{name}: {value}" for name, value in report["facts"] if (name, value) not in shared)
        own += [(report["caption"], text)] if text else []
    return {"caption": f"{names}: {', '.join(report['caption'] for report in reports)}", "facts": [*shared, *own]}


def machine_facts(report: Report) -> MachineFacts:
    """Return the caption and facts about one report's machine, for the head of the page."""
    machine = report["machine"]
    facts: list[tuple[str, str | None]] = [(str(d["device"]), _device_text(d)) for d in machine["devices"]]
    versions = machine["versions"]
    facts += [
        ("torch on", machine.get("torch") or "not installed"), ("host", f"{machine.get('cores')} cores"),
        ("commit", machine.get("commit")), ("specs", machine.get("specs")),
        ("system", machine.get("system")), ("processor", machine.get("processor")),
        ("driver", machine.get("driver")), ("Python", machine.get("python")),
        ("calls", machine.get("calls")), ("load before", _load_text(machine.get("load_before"))),
        ("load during rows", _loads_text(report)),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
    ]  # fmt: skip
    caption = f"{suite_of(report)}, {str(machine['date'])[:16].replace('T', ' ')}"
    return {"caption": caption, "facts": [(name, value) for name, value in facts if value]}


def _load_text(load: float | None) -> str:
    return "" if load is None else f"{number(load)} cores used by other programs"


def _loads_text(report: Report) -> str:
    """Return median and maximum of the load during rows; empty if no row has one."""
    loads = [row["load"] for row in (*report["host"], *report["kernels"]) if "load" in row]
    if not loads:
        return ""
    return f"{number(statistics.median(loads))} cores used by other programs (median), at most {number(max(loads))}"


def _device_text(device: DeviceFacts) -> str:
    """Return a device's name, size, driver and kind in words."""
    words = [
        str(device["name"]),
        f"{device['cores']} cores or compute units" if device.get("cores") else "",
        f"{device['memory'] / 2**30:.1f} GiB" if device.get("memory") else "",
        device.get("driver") or "",
        device.get("kind") or "",
    ]
    return ", ".join(filter(None, words))


def table(section: Section, roof: Roof | None) -> Table:
    """Return a section for the template: its non-empty columns, and rows of cells."""
    columns, rows = (_host if section.part == "host" else _kernels)(section, roof)
    filled = [i for i in range(len(columns)) if any(row["cells"][i]["text"] for row in rows)]
    columns = [columns[i] for i in filled]
    for row in rows:
        row["cells"] = [row["cells"][i] for i in filled]
    details = {name for name, *_ in _DETAILS}
    heads: list[Column] = [{"name": name, "help": help, "number": numeric, "detail": name in details}
             for name, help, numeric in columns]  # fmt: skip
    return {"title": section.title, "device": section.device, "columns": heads, "rows": rows}


def _kernels(section: Section, roof: Roof | None) -> tuple[list[tuple[str, str, bool]], list[TableRow]]:
    peers = section.peers
    columns = [
        ("row", "what is computed", False), ("min µs", "minimum time of a call", True), ("median µs", "", True),
        ("GB/s", "bytes / minimum time", True), ("GFLOP/s", "operations / minimum time", True),
        ("of roofline", "share of the best measured rate; c: of a cache's bandwidth; >: faster than memory", True),
        *(column for n in peers for column in ((f"{n} / ours", f"{n}'s minimum time / our minimum time", True),
                                           (f"{n}, medians", f"{n}'s median / our median", True),
                                           (f"{n}, range", "of the ratios of rounds, whose samples alternate", True))),
        *((f"{n} throughput".strip(), "mean and standard deviation", False) for n in ("", *peers)),
        ("of a copy", "bandwidth / that of a copy", True), ("aim", "minimum ratios that the project aims at", False),
        ("error", "largest, relative to the largest value", True),
        *((name, help, numeric) for name, help, numeric, _ in _DETAILS), ("notes", "", False),
    ]  # fmt: skip
    rows = []
    for entry in section.entries:
        bytes_rate, flops_rate = rates(entry)
        roof_share = share(entry, roof)
        cells = [_text(entry.name), *_times(entry, ""), _number(bytes_rate and bytes_rate * 1e-9),
                 _number(flops_rate and flops_rate * 1e-9),
                 _number(None) if roof_share is None else
                 _number(roof_share.value, str(roof_share), bar=roof_share.value)]  # fmt: skip
        for peer in peers:
            ratios = entry.ratio(peer) or (None, None)
            role = "missed" if peer in entry.missed else "met" if peer in entry.aims else ""
            if ratios[0] is not None and entry.peer_doubts(peer):
                cells.append(_number(ratios[0], f"~{number(ratios[0])}", role=f"{role} doubtful".strip()))
            else:
                cells.append(_number(ratios[0], role=role))
            low, high = entry.ratio_range(peer) or (None, None)
            range_text = "" if low is None or high is None else f"{number(low)} to {number(high)}"
            cells += [_number(ratios[1]), _number(low, range_text)]
        cells += [_text(throughput_text(entry.throughput(name), entry.unit)) for name in ("", *peers)]
        role = "missed" if "copy" in entry.missed else "met" if "copy" in entry.aims else ""
        cells.append(_number(entry.copy and entry.copy[0], role=role))
        cells += [_text(", ".join(f"{n} {aim:g}" for n, aim in entry.aims.items()), "missed" * bool(entry.missed)),
                  _number(entry.error, f"{entry.error:.1g}" if entry.error is not None else ""),
                  *(_detail(cell(entry)) for *_, cell in _DETAILS),
                  _text(entry.remarks, "wide" + " missed" * bool(entry.problem))]  # fmt: skip
        rows.append(_row(entry, cells))
    return columns, rows


def _detail(cell: Cell) -> Cell:
    return {**cell, "role": f"{cell['role']} detail".strip()}


def _fact(name: NumberFact, unit: Callable[[float], str] = number) -> Callable[[Entry], Cell]:
    """Return a function from an entry to the cell of one of its facts, empty if the report has none."""

    def cell(entry: Entry) -> Cell:
        value = entry.number(name)
        return _number(None) if value is None else _number(value, unit(value))

    return cell


def _error(measure: Literal["abs", "rel", "ulp"]) -> Callable[[Entry], Cell]:
    def cell(entry: Entry) -> Cell:
        value = entry.accuracy(measure)
        return _number(None) if value is None else _number(value, f"{value:.2g}")

    return cell


def _resident(entry: Entry) -> Cell:
    size = entry.resident.get(entry.device)
    return _number(None) if size is None else _number(size, in_bytes(size))


# Columns that a reader can switch on: name, help, whether they hold numbers, and a function from an entry to its cell.
_DETAILS: tuple[tuple[str, str, bool, Callable[[Entry], Cell]], ...] = (
    ("abs error", "largest", True, _error("abs")), ("rel error", "largest, relative to the value", True, _error("rel")),
    ("ulp", "largest error in units of the last place", True, _error("ulp")),
    ("host µs", "what the host took to queue a call", True, _fact("host_us")),
    ("cold ms", "compiling the kernels from nothing", True, _fact("cold_ms")),
    ("warm ms", "loading the kernels from the cache", True, _fact("warm_ms")),
    ("peak", "most memory in use during a call", True, _fact("peak_bytes", in_bytes)),
    ("resident", "by how much a process grows that does only this row", True, _resident),
    ("driver allocs", "segments that a later call allocates from the driver", True,
     _fact("driver_allocations", "{:.0f}".format)),
    ("p20 µs", "20th percentile", True, lambda e: _number(e.time["p20"] * 1e6) if e.time else _number(None)),
    ("p80 µs", "80th percentile", True, lambda e: _number(e.time["p80"] * 1e6) if e.time else _number(None)),
    ("samples", "", True, lambda e: _number(e.time["samples"], str(e.time["samples"])) if e.time else _number(None)),
    ("dtype", "", False, lambda e: _text(e.dtype or e.kind)), ("clock", "", False, lambda e: _text(e.clock)),
    ("kernels", "what a call launches: op and schedule", False,
     lambda e: _text(", ".join(map(printable, e.facts.get("schedule") or ())), "wide")),
    ("against", "what results were checked with", False, lambda e: _text(e.against)),
)  # fmt: skip


def _host(section: Section, roof: Roof | None) -> tuple[list[tuple[str, str, bool]], list[TableRow]]:
    peers = section.peers
    columns = [
        ("call", "pipelined, small shapes", False), ("min µs", "", True), ("median µs", "", True),
        ("aim min µs", "", True), ("aim median µs", "", True), *((f"{n} min µs", "", True) for n in peers),
        ("notes", "", False),
    ]  # fmt: skip
    rows = []
    for entry in section.entries:
        limits = entry.limits or (None, None)
        role = "" if entry.limits is None else "missed" if entry.missed else "met"
        cells = [_text(entry.name), *_times(entry, role), *(_number(limit and limit * 1e6) for limit in limits),
                 *(_number(entry.peers[n]["least"] * 1e6) if n in entry.peers else _number(None) for n in peers),
                 _text(entry.remarks, "missed" * bool(entry.problem))]  # fmt: skip
        rows.append(_row(entry, cells))
    return columns, rows


def _row(entry: Entry, cells: list[Cell]) -> TableRow:
    return {"group": entry.group, "missed": bool(entry.missed or entry.problem), "cells": cells}


def _times(entry: Entry, role: str) -> list[Cell]:
    if entry.time is None:
        return [_number(None), _number(None)]
    least, median = entry.time["least"] * 1e6, entry.time["median"] * 1e6
    if not entry.doubts:
        return [_number(least, role=role), _number(median, role=role)]
    return [_number(least, f"~{number(least)}", role=f"{role} doubtful".strip()), _number(median, role=role)]
