"""`weftgrad bench --curves DIR`: train the small models, and draw what they learn.

Each model trains on every device of `--device`, and in torch where it is installed, from the same weights on the same
batches. The small models have no dropout, so that the first losses agree to rounding. Training amplifies rounding, so
that later the curves agree in shape and not in every point. Read `models.lessons`, which says what is learnt, then
`learning_plots`, which draws.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad as wg

from ..runtime.errors import ArgumentError
from . import outputs
from .models import load
from .models.lessons import LESSONS, Lesson
from .models.suite import batch_on
from .models.training import RECIPES, step_of
from .sites import OurSite, Site

if TYPE_CHECKING:
    from ..runtime.dtypes import Array
    from .library_types import Tensor
    from .report_types import LearningRow, Report

__all__ = ["learn", "run"]

_SCORES = 10  # points of the curve of scores


def run(options: argparse.Namespace) -> int:
    """Train, print and draw. Return exit status 0."""
    from .peers import parse, peer_sites  # lazy: start-up of the command line

    for name in ("output", "markdown", "compare", "resume", "figures"):
        if getattr(options, name):
            raise ArgumentError(f"bench: --curves writes reports to its own folder: leave --{name} away")
    lessons = [lesson for lesson in LESSONS if not options.only or options.only.lower() in lesson.name.lower()]
    if not lessons:
        known = ", ".join(lesson.name for lesson in LESSONS)
        raise ArgumentError(f"bench: --curves: no model has {options.only!r} in its name: there are {known}")
    outputs.check(options)
    names = dict.fromkeys(str(wg.device(name)) for name in (options.device or str(wg.device())).split(","))
    our_sites = [OurSite(name) for name in names]
    peers = peer_sites(our_sites, 1, parse(options.peers))
    sites = [*our_sites, *(site for site in peers if site.modules)]
    rows = []
    for lesson in lessons:
        initial = None
        for site in sites:
            row, initial = learn(lesson, site, initial)
            rows.append(row)
            print(f"{row['name']} on {row['device']}: loss {row['losses'][0]:.2f} to {row['losses'][-1]:.2f}, "
                  f"{row['measure']} {row['scores'][0]:.0%} to {row['scores'][-1]:.0%}, {row['seconds']:.1f} s",
                  flush=True)  # fmt: skip
    print(*(f"written to {path}" for path in _write(options.curves, sites, rows)), sep="\n")
    return 0


def learn(lesson: Lesson, site: Site, state: Mapping[str, Array] | None) -> tuple[LearningRow, Mapping[str, Array]]:
    """Train a model on a site.

    Args:
        lesson: The model and its data.
        site: The library and device.
        state: The initial weights; None: those of the library, from seed 0.

    Returns:
        The row of the report, and the initial weights.
    """
    site.seed()
    library = site.library
    model = lesson.build(load(lesson.module, library)).to(site.device)
    if state is not None:
        model.load_state_dict({name: library.tensor(array) for name, array in state.items()})
    initial = {name: tensor.detach().cpu().numpy().copy() for name, tensor in model.state_dict().items()}
    step = step_of(RECIPES[lesson.module], library, model, {"lr": lesson.lr})
    batches = list(lesson.batches())
    scored_steps = {round(part * len(batches) / _SCORES) for part in range(_SCORES + 1)}
    losses: list[Tensor] = []
    scores: list[float] = []
    seconds = 0.0
    for number in range(len(batches) + 1):
        if number in scored_steps:
            model.eval()
            with library.no_grad():
                scores.append(lesson.score(site, model))
            model.train()
        if number < len(batches):
            start = time.perf_counter()
            losses.append(step(batch_on(site, batches[number])).detach())
            site.wait()
            seconds += time.perf_counter() - start
    row: LearningRow = {
        "name": lesson.name, "device": site.name, "measure": lesson.measure, "losses": [float(x) for x in losses],
        "scores": scores, "seconds": seconds,
    }  # fmt: skip
    return row, initial


def _write(folder: Path, sites: Sequence[Site], rows: list[LearningRow]) -> list[Path]:
    """Write the report as JSON and its pictures as PNG and SVG into a folder, and return the paths."""
    # lazy: start-up of the command line
    from . import plots
    from .machine import describe
    from .report_files import as_bytes
    from .rows import FORMAT

    report: Report = {
        "format": FORMAT, "suite": "models", "machine": describe(sites), "host": [], "kernels": [], "learning": rows
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "learning.json"
    path.write_bytes(as_bytes(report, path))
    return [path, *plots.write([], folder, [report])]
