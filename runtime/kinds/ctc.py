"""Connectionist temporal classification (`codegen/specs/ctc.yaml`): a recursion over time for a sample's states.

Schedules: `alpha` and `beta`, a work-group a sample, of one work-item on a CPU; then for the gradient `rows` (CPU: a
time of a sample a work-item) or `grid` (GPU: an element a work-item, which looks for its class in all states).
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError, UnsupportedDType
from ..layout import pack_longs
from . import Planned, Request

__all__ = ["plan"]


def plan(request: Request) -> Planned:
    """The results' layouts and the launches. Raises `ShapeError`, `UnsupportedDType`."""
    given = {o.name: m for o, m in request.tensors}
    log_probs, states = _checked(request, given)
    times, samples, classes = log_probs.shape
    forward = request.record.name == "ctc_alpha"
    shapes = [(samples,), (samples, times, states)] if forward else [log_probs.shape]
    results = tuple(meta(log_probs.dtype, shape, None, request.device) for shape in shapes)
    if not results[0].numel:
        return Planned(results)
    if request.capabilities.style == "triton":
        from .triton import ctc as triton

        return triton.plan(request, log_probs, states, results)
    sizes = (times, samples, classes, states, request.static("blank"), *log_probs.strides)
    geometry = pack_longs(sizes)  # type: ignore[arg-type]
    able = request.capabilities
    group = min(64, able.max_group) if able.style == "gpu" else 1
    value, whole = Slot(log_probs.dtype.name), Slot("int64", "index")
    spread = ((samples * group,), (group,))
    work = samples * times * states * 32
    if forward:
        step = _step(
            request, "alpha", "alpha", (0, 1, 2, 3, 4), (value, whole, whole, value, value), geometry, spread, work
        )
        return Planned(results, (step,))
    scratch = 7
    beta = _step(request, "beta", "beta", (1, 2, 3, scratch), (value, whole, whole, value), geometry, spread, work)
    slots = (value, value, whole, whole, value, value, value, value)
    rows = times * samples
    if able.style == "gpu":
        local = min(128, able.max_group)
        spread = (-(-rows * classes // local) * local,), (local,)
    else:
        spread = (rows,), (1,)
    last = _step(
        request, "gradient", "grid" if able.style == "gpu" else "rows", (0, 1, 2, 3, 4, 5, 6, scratch), slots, geometry,
        spread, rows * (classes + states) * 8,
    )  # fmt: skip
    return Planned(results, (beta, last), (rows * states * log_probs.dtype.itemsize,))


def _checked(request: Request, given: dict[str, Meta]) -> tuple[Meta, int]:
    """The layout of the log-probabilities, and the states that there is room for."""
    where, log_probs = request.where(), given["log_probs"]
    if request.into is not None:
        raise ArgumentError(f"{where}: has no form that writes into a given tensor")
    if log_probs.ndim != 3:
        raise ShapeError(f"{where}: log_probs are (T, N, C)")
    if log_probs.dtype not in (dtypes.float32, dtypes.float64):
        raise UnsupportedDType(f"{where}: takes float32 and float64, not {log_probs.dtype.name}; use .float()")
    if log_probs.dtype is dtypes.float64 and not request.capabilities.fp64:
        raise UnsupportedDType(f"{where}: the device has no float64; use float32 there")
    times, samples, _ = log_probs.shape
    alpha = given.get("alpha")
    states = alpha.shape[2] if alpha is not None else request.static("states")
    assert isinstance(states, int)
    wanted = {
        "places": (samples, 3), "grad": (samples,), "losses": (samples,), "alpha": (samples, times, states),
    }  # fmt: skip
    for name, layout in given.items():
        if name != "log_probs" and (not layout.contiguous or layout.shape != wanted.get(name, layout.shape)):
            raise ShapeError(f"{where}: {name} must be contiguous, of shape {list(wanted.get(name, layout.shape))}")
        whole = name in ("places", "targets")
        if layout.dtype is not (dtypes.int64 if whole else log_probs.dtype):
            raise UnsupportedDType(f"{where}: {name} must be {'int64' if whole else log_probs.dtype.name}")
    return log_probs, states


def _step(
    request: Request, entry: str, schedule: str, buffers: tuple[int, ...], slots: tuple[Slot, ...], geometry: bytes,
    spread: tuple[tuple[int, ...], tuple[int, ...]], work: int,
) -> Step:  # fmt: skip
    text = request.record.texts[request.device.driver.target]
    defines = ((f"SCHEDULE_{schedule.upper()}", "1"), ("BUFFERS", str(len(buffers))))
    element = request.tensors[0][1].dtype.compute
    made = Instance("ctc", text.source, f"ctc_{entry}", element, 1, slots, defines, ("exp", "log"))
    return Step(made, buffers, geometry, *spread, work)
