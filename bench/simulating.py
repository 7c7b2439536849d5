"""`weftgrad simulate`: predict a training step on many devices, from a recorded step.

    weftgrad simulate resnet --machine dgx-h100 --step-time 0.02 --plan ddp --plan zero3 --plot scaling.png
    weftgrad simulate train.py --plan ddp,tensor=8,pipeline=4,microbatches=16 --devices 32,256,2048
    weftgrad simulate step.json --json

`distributed.simulate` simulates. This module records a model of `bench.models` or of a script, or reads a recorded
timeline, and prints, draws and writes the predictions.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

import weftgrad as wg

from ..cli.terminal import Style, table
from ..distributed.simulate import (
    DEVICE_COUNTS,
    MACHINES,
    Machine,
    Noise,
    Plan,
    Prediction,
    Timeline,
    predict_scaling,
    record_timeline,
)
from ..runtime.errors import ArgumentError

if TYPE_CHECKING:
    from .models.sizes import ModelSize

__all__ = ["parse_plan", "run"]

_SCRIPT_FUNCTION = "build_step"
_FLAGS = {"yes": True, "no": False}


def run(options: argparse.Namespace) -> int:
    """Record or read the timeline, predict, and print. Return exit status 0."""
    plans = [parse_plan(text) for text in options.plan or ("ddp", "zero1", "zero3")]
    counts = _device_counts(options.devices)
    if options.machine not in MACHINES:
        raise ArgumentError(f"simulate: --machine: there is no {options.machine!r}: there are {', '.join(MACHINES)}")
    machine = MACHINES[options.machine]
    noise = Noise(options.jitter, options.slow_share, options.slow_factor, options.seed)
    is_even = not options.jitter and (not options.slow_share or options.slow_factor == 1)
    timeline = _timeline(options.source, options.device)
    if options.save:
        timeline.save(options.save)
    if options.step_time is not None:
        timeline = timeline.with_step_seconds(options.step_time)
    predictions = {
        str(plan): predict_scaling(
            timeline, machine, plan, counts, noise=None if is_even else noise, algorithm=options.algorithm
        )
        for plan in plans
    }
    for plan in plans:
        if not predictions[str(plan)]:
            raise ArgumentError(
                f"simulate: {plan} needs a multiple of {plan.model_ranks} devices; none of --devices is"
            )
    print(_as_json(timeline, machine, predictions) if options.json else _as_tables(timeline, machine, predictions))
    if options.plot:
        from . import simulate_plots  # lazy: optional dependency (matplotlib)

        simulate_plots.write(options.plot, timeline, machine, predictions)
    return 0


def parse_plan(text: str) -> Plan:
    """Return the plan that a text such as `ddp,tensor=8,overlap=no` describes.

    Args:
        text: The sharding, then options with commas between.

    Returns:
        `Plan`.

    Raises:
        ArgumentError: An option is unknown, or its value is no number.
    """
    sharding, *parts = text.split(",")
    kinds = {field.name: field.type for field in fields(Plan) if field.name != "sharding"}
    values: dict[str, int | bool] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in kinds:
            raise ArgumentError(f"simulate: --plan {text}: no option {name!r}; there are {', '.join(kinds)}")
        if kinds[name] == "bool" and value in _FLAGS:
            values[name] = _FLAGS[value]
        elif kinds[name] == "int" and value.isdecimal():
            values[name] = int(value)
        else:
            example = "yes or no" if kinds[name] == "bool" else "a number"
            raise ArgumentError(f"simulate: --plan {text}: {name} is {example}, not {value!r}")
    return Plan(sharding, **values)  # type: ignore[arg-type]


def _device_counts(text: str | None) -> Sequence[int]:
    if text is None:
        return DEVICE_COUNTS
    if not all(part.isdecimal() and int(part) for part in text.split(",")):
        raise ArgumentError(f"simulate: --devices are numbers with commas between, as in 8,64,512, not {text!r}")
    return [int(part) for part in text.split(",")]


def _timeline(source: str, device: str | None) -> Timeline:
    """Read or record the timeline that the command line names."""
    path = Path(source)
    if path.suffix == ".json":
        return Timeline.load(path)
    if path.suffix == ".py":
        if not path.is_file():
            raise ArgumentError(f"simulate: there is no script {source}")
        function = runpy.run_path(source).get(_SCRIPT_FUNCTION)
        if not callable(function):
            raise ArgumentError(
                f"simulate: {source} defines no function {_SCRIPT_FUNCTION}(); it returns a function that trains one "
                "step, and the model"
            )
        step, model = function()
        return record_timeline(step, model, name=path.stem)
    from .models.sizes import GPU_SIZES, HOST_SIZES  # lazy: start-up of the command line

    on_host = wg.device(device).type in ("cpu", "interpreter")
    sizes = {_key(size.name): size for size in (HOST_SIZES if on_host else GPU_SIZES)}
    sizes |= {size.recipe: size for size in reversed(sizes.values())}
    if _key(source) not in sizes:
        names = ", ".join(sorted(sizes))
        raise ArgumentError(f"simulate: no model is called {source!r}: there are {names}; or name a .py or .json file")
    return _record_model(sizes[_key(source)], device)


def _key(name: str) -> str:
    return name.lower().replace("-", "")


def _record_model(size: ModelSize, device: str | None) -> Timeline:
    """Record a training step of a model of the suite `models`, on random data."""
    # lazy: start-up of the command line
    from .models.loading import load
    from .models.suite import batch_on
    from .models.training import RECIPES, step_of
    from .sites import OurSite

    site = OurSite(str(wg.device(device)))
    recipe = RECIPES[size.recipe]
    model = size.build(load(recipe.module)).to(site.device)
    step, batch = step_of(recipe, wg, model), batch_on(site, size.batch(size.count))
    return record_timeline(lambda: step(batch), cast(wg.nn.Module, model), name=f"{size.name}, {size.size}")


def _as_tables(timeline: Timeline, machine: Machine, predictions: dict[str, list[Prediction]]) -> str:
    """Return a table for each plan, below a line about the step and the machine."""
    style = Style()
    lines = [
        f"{timeline.name} on {timeline.device}: a step of {_time(timeline.step_seconds)} (forward "
        f"{_time(timeline.forward_seconds)}, backward {_time(timeline.backward_seconds)}, update "
        f"{_time(timeline.update_seconds)}), {_size(timeline.gradient_bytes)} of gradients",
        f"predicted for {machine.name}, the recorded batch on each replica",
    ]
    headings = ("devices", "step", "efficiency", "computes", "communicates", "exposed", "memory")
    for plan, rows in predictions.items():
        cells = [
            [str(p.devices), _time(p.step_seconds), f"{p.efficiency:.1%}", _time(p.compute_seconds),
             _time(p.communication_seconds), _time(p.exposed_seconds), _size(p.memory_bytes)]
            for p in rows
        ]  # fmt: skip
        marks = [["bad" if machine.memory and p.memory_bytes > machine.memory else "" for _ in headings] for p in rows]
        lines += ["", style("heading", plan), table(cells, headings, style, marks)]
        if any(machine.memory and p.memory_bytes > machine.memory for p in rows):
            lines.append(f"more than the {_size(machine.memory)} of a device where memory is larger")
    return "\n".join(lines)


def _as_json(timeline: Timeline, machine: Machine, predictions: dict[str, list[Prediction]]) -> str:
    content = {
        "name": timeline.name,
        "device": timeline.device,
        "step_seconds": timeline.step_seconds,
        "machine": asdict(machine),
        "plans": {
            plan: [asdict(row) | {"exposed_seconds": row.exposed_seconds} for row in rows]
            for plan, rows in predictions.items()
        },
    }
    return json.dumps(content, indent=1)


def _time(seconds: float) -> str:
    rounded = float(f"{seconds:.3g}")  # 999.9 us are 1 ms
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if rounded >= scale:
            return f"{seconds / scale:.3g} {unit}" if rounded / scale < 1000 else f"{seconds / scale:.0f} {unit}"
    return f"{seconds * 1e6:.2f} us" if seconds else "0"


def _size(nbytes: float) -> str:
    rounded = float(f"{nbytes:.3g}")
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if rounded >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes:.0f} B"
