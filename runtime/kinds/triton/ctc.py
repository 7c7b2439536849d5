"""Plan connectionist temporal classification for Triton.

`alpha` and `beta`: one program per sample, whose states are one block. `gradient`: one program per (time, sample) row
and block of classes. The algorithm and the operands are those of `..ctc`.
"""

from __future__ import annotations

from ...backends.protocol import Instance, Slot, Step
from ...device import Meta
from .. import Planned, Request
from . import Defines, Geometry, index_type, next_power, strided_extent

__all__ = ["plan"]

_MAX_CLASS_BLOCK = 512


def plan(request: Request, log_probs: Meta, states: int, results: tuple[Meta, ...]) -> Planned:
    """Plan the launches.

    Args:
        log_probs: layout `(T, N, C)`.
        states: label states that alpha has room for.
        results: layouts of the results, from `..ctc.plan`.
    """
    times, samples, classes = log_probs.shape
    blank = request.static("blank")
    assert isinstance(blank, int)
    extent = strided_extent(log_probs.shape, log_probs.strides)
    offset_type = index_type([samples * times * states, extent, times * samples * classes])
    value_slot, index_slot = Slot(log_probs.dtype.name), Slot("int64", "index")
    block = next_power(states)
    warps = 1 if block <= 128 else 4 if block <= 1024 else 8
    state_defines: Defines = {"INDEX": offset_type, "STATES": block, "num_warps": warps}
    sizes: Geometry = (times, states, blank, *log_probs.strides)
    work = samples * times * states * 32
    text = request.text

    def step(
        entry: str, buffers: tuple[int, ...], slots: tuple[Slot, ...], defines: Defines, geometry: Geometry,
        grid: tuple[int, ...], work: int,
    ) -> Step:  # fmt: skip
        kernel = Instance(
            "ctc", text.source, f"ctc_{entry}", log_probs.dtype.compute, 1, slots, tuple(defines.items()),
            text.functions,
        )  # fmt: skip
        return Step(kernel, buffers, geometry, grid, None, work)

    if request.record.name == "ctc_alpha":
        alpha = step(
            "alpha",
            (0, 1, 2, 3, 4),
            (value_slot, index_slot, index_slot, value_slot, value_slot),
            state_defines,
            sizes,
            (samples,),
            work,
        )
        return Planned(results, (alpha,))
    scratch_buffer = 7  # behind the operands and results
    beta = step(
        "beta", (1, 2, 3, scratch_buffer), (value_slot, index_slot, index_slot, value_slot), state_defines, sizes,
        (samples,), work,
    )  # fmt: skip
    class_block = min(next_power(classes), _MAX_CLASS_BLOCK)
    slots = (value_slot, value_slot, index_slot, index_slot, value_slot, value_slot, value_slot, value_slot)
    gradient = step(
        "gradient", (0, 1, 2, 3, 4, 5, 6, scratch_buffer), slots, {"INDEX": offset_type, "CLASSES": class_block},
        (times, samples, classes, states, blank, *log_probs.strides), (times * samples, -(-classes // class_block)),
        times * samples * (classes + states) * 8,
    )  # fmt: skip
    return Planned(results, (beta, gradient), (samples * times * states * log_probs.dtype.itemsize,))
