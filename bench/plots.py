"""Plots of reports by matplotlib: speed over size for each op, and the plots of other modules.

`roofline_plots`, `bar_plots` and `step_plots` draw rooflines, bars and steps, `figure_plots` the figures of
`--figures`, `learning_plots` those of `--curves`. Names are drawn verbatim: TeX markup in them is not interpreted.
matplotlib is optional and slow to import, so only functions import it.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from . import bar_plots, figure_plots, learning_plots, roofline_plots, step_plots
from .plot_axes import Plan, chunks, colours, ticks_up
from .rows import Entry, Section, sections

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

    from .report_types import Report

__all__ = ["available", "file_stem", "svg", "write"]

_SIZE = re.compile(r"(.+)\s(\d+(?:x\d+)*)([KMG]?)((?:, .*)?)")  # op, extents, unit, suffix such as `, gradient`
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LABEL_LETTERS = 52  # characters that fit below a plot of sizes
_MAX_SWEEPS = 9  # ops per figure


def available() -> bool:
    """Return True if matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def svg(entries: Sequence[Entry], reports: Sequence[Report] = ()) -> dict[str, str]:
    """Return all plots by title, as SVG elements without a prologue. Curves and timelines of `reports` are included."""
    svg_by_title = {}
    for title, _, figure in _figures(entries, reports):
        text = io.StringIO()
        _save(figure, text, "svg")
        svg_by_title[title] = text.getvalue()[text.getvalue().index("<svg") :]
    return svg_by_title


def write(entries: Sequence[Entry], folder: Path, reports: Sequence[Report] = ()) -> list[Path]:
    """Write all plots into `folder` as PNG and SVG, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for _, name, figure in _figures(entries, reports):
        for kind in ("png", "svg"):
            _save(figure, folder / f"{name}.{kind}", kind)
            written.append(folder / f"{name}.{kind}")
    return written


def file_stem(title: str) -> str:
    """Return a file name without suffix for a title: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "plot"


def _save(figure: Figure, target: Path | TextIO, kind: str) -> None:
    import matplotlib

    # Without dates and random identifiers, the same rows give the same file. Text as <text> is much shorter than paths.
    with (
        matplotlib.rc_context({"svg.hashsalt": "weftgrad", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font lacks some scripts
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None} if kind == "svg" else None
        figure.savefig(target, format=kind, dpi=110, metadata=metadata)


def _figures(entries: Sequence[Entry], reports: Sequence[Report]) -> Iterator[tuple[str, str, Figure]]:
    """Yield the title, file name and figure of each plot."""
    import matplotlib
    from matplotlib.figure import Figure

    used_names: set[str] = set()
    for title, size, draw in _all_plans(entries, reports):
        stem = file_stem(title)
        name = next(n for n in (stem, *(f"{stem}-{i}" for i in range(2, 1000))) if n not in used_names)
        used_names.add(name)
        with matplotlib.rc_context({"text.parse_math": False, "font.size": 9, "axes.titlesize": 10}):
            figure = Figure(figsize=size, layout="constrained")
            figure.suptitle(title)
            draw(figure)
        yield title, name, figure


def _all_plans(entries: Sequence[Entry], reports: Sequence[Report]) -> Iterator[Plan]:
    yield from _plans(entries)
    for module in (step_plots, figure_plots, learning_plots):
        yield from module.plans(reports)


def _plans(entries: Sequence[Entry]) -> Iterator[Plan]:
    """Yield the plans of all figures."""
    kernels = [e for e in entries if e.part == "kernel" and e.time is not None]
    yield from roofline_plots.plans(kernels)
    for section in sections(kernels):
        sweeps = [(op, points) for op, points in _sweeps(section).items() if len(points) > 2]
        for part, chunk in enumerate(chunks(sweeps, _MAX_SWEEPS)):
            columns = min(3, len(chunk))
            rows = -(-len(chunk) // columns)
            suffix = f", {part + 1}" if part else ""
            yield (f"Sizes, {section.title}{suffix}", (0.6 + 3.9 * columns, 0.9 + 2.9 * rows),
                   partial(_sizes, sweeps=chunk, grid=(rows, columns)))  # fmt: skip
    yield from bar_plots.plans(kernels)


# --- Sizes ------------------------------------------------------------------------------------------------------------


def _sweeps(section: Section) -> dict[str, list[tuple[int, str, Entry]]]:
    """Group rows whose names differ only in a size. A row's size is the product of its extents."""
    sweeps: dict[str, list[tuple[int, str, Entry]]] = {}
    for entry in section.entries:
        match = _SIZE.fullmatch(entry.name)
        if match:
            size = math.prod(map(int, match[2].split("x"))) * _UNITS[match[3]]
            op = f"{entry.group}: {match[1]}{match[4]}"
            sweeps.setdefault(op, []).append((size, match[2] + match[3], entry))
    return {op: sorted(rows, key=lambda row: row[0]) for op, rows in sweeps.items()}


def _sizes(figure: Figure, sweeps: list[tuple[str, list[tuple[int, str, Entry]]]], grid: tuple[int, int]) -> None:
    names = list(dict.fromkeys(n for _, rows in sweeps for _, _, e in rows for n in (e.device, *e.peers)))
    colour_of = colours(names)
    drawn: dict[str, Artist] = {}
    all_axes = figure.subplots(*grid, squeeze=False).flat
    for axes, (op, rows) in zip(all_axes, sweeps, strict=False):
        first = rows[0][2]
        unit = "GFLOP/s" if first.flops else "GB/s" if first.bytes else "µs"
        for name in names:
            points = [(size, value) for size, _, e in rows if (value := _rate(e, name, unit)) is not None]
            if points:
                (drawn[name],) = axes.plot(*zip(*points, strict=True), "o-", markersize=4, linewidth=1.4,
                                           color=colour_of[name])  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(*_spaced_labels([(size, label) for size, label, _ in rows]))
        axes.minorticks_off()
        low, high = axes.get_ylim()
        ticks_up(axes, low, high)
        axes.set(title=op, ylabel=unit)
        axes.grid(True, alpha=0.3)
    for axes in list(figure.axes)[len(sweeps) :]:
        axes.set_visible(False)
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=6, frameon=False)


def _rate(entry: Entry, name: str, unit: str) -> float | None:
    timing = entry.time if name == entry.device else entry.peers.get(name)
    if timing is None:
        return None
    amount = entry.bytes if unit == "GB/s" else entry.flops
    return float(timing["least"] * 1e6) if unit == "µs" else amount / timing["least"] * 1e-9


def _spaced_labels(sizes: list[tuple[int, str]]) -> tuple[list[int], list[str]]:
    """Return tick positions and labels without labels that would overlap the previous one."""
    log_per_letter = math.log(max(size for size, _ in sizes) / min(size for size, _ in sizes)) / _LABEL_LETTERS
    shown: list[tuple[int, str]] = []
    for size, name in sizes:
        label = name
        if name.isdecimal() and size >= 4096:  # 64K
            unit = next((u for u in "GMK" if size % _UNITS[u] == 0), "")
            label = f"{size // _UNITS[unit]}{unit}"
        min_log_distance = (len(shown[-1][1]) + len(label) + 2) / 2 * log_per_letter if shown else 0
        if not shown or math.log(size / shown[-1][0]) > min_log_distance:
            shown.append((size, label))
    return [size for size, _ in shown], [label for _, label in shown]
