"""Connectionist temporal classification: a sample a program, whose states are a block; then blocks of classes."""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from .. import Planned, Request
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["plan"]

_MOST_CLASSES = 512


def plan(request: Request, log_probs: Meta, states: int, results: tuple[Meta, ...]) -> Planned:
    """The launches; `states`: that there is room for."""
    times, samples, classes = log_probs.shape
    blank = request.static("blank")
    assert isinstance(blank, int)
    reach = strided_extent(log_probs.shape, log_probs.strides)
    index = index_type([samples * times * states, reach, times * samples * classes])
    value, whole = Slot(log_probs.dtype.name), Slot("int64", "index")
    block = next_power(states)
    warps = 1 if block <= 128 else 4 if block <= 1024 else 8
    walk: Defines = {"INDEX": index, "STATES": block, "num_warps": warps}
    sizes: Geometry = (times, states, blank, *log_probs.strides)
    work = samples * times * states * 32
    text = request.record.texts[request.device.driver.target]

    def step(
        entry: str, buffers: tuple[int, ...], slots: tuple[Slot, ...], defines: Defines, geometry: Geometry,
        grid: tuple[int, ...], work: int,
    ) -> Step:  # fmt: skip
        made = Instance(
            "ctc", text.source, f"ctc_{entry}", log_probs.dtype.compute, 1, slots, tuple(defines.items()),
            text.functions,
        )  # fmt: skip
        return Step(made, buffers, geometry, grid, None, work)

    if request.record.name == "ctc_alpha":
        first = step("alpha", (0, 1, 2, 3, 4), (value, whole, whole, value, value), walk, sizes, (samples,), work)
        return Planned(results, (first,))
    beta = step("beta", (1, 2, 3, 7), (value, whole, whole, value), walk, sizes, (samples,), work)
    wide = min(next_power(classes), _MOST_CLASSES)
    slots = (value, value, whole, whole, value, value, value, value)
    last = step(
        "gradient", (0, 1, 2, 3, 4, 5, 6, 7), slots, {"INDEX": index, "CLASSES": wide},
        (times, samples, classes, states, blank, *log_probs.strides), (times * samples, -(-classes // wide)),
        times * samples * (classes + states) * 8,
    )  # fmt: skip
    return Planned(results, (beta, last), (samples * times * states * log_probs.dtype.itemsize,))
