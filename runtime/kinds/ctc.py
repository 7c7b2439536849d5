"""Plan connectionist temporal classification (CTC, `codegen/specs/ctc.yaml`).

The loss is the forward recursion `alpha` over time, one value per label state (Graves et al., 2006). The gradient needs
the backward recursion `beta` as well. Kernels (`templates/opencl/ctc.cl.j2`):

- `alpha` and `beta`: one work-group per sample. On a CPU the group is one work-item.
- `gradient`, schedule `rows` (CPU): one work-item per (time, sample) row.
- `gradient`, schedule `grid` (GPU): one work-item per element; it looks for its class in all states.

`triton/ctc.py` plans the same op for Triton.
"""

from __future__ import annotations

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError, UnsupportedDType
from ..layout import pack_longs
from . import Planned, Request

__all__ = ["PLANS", "plan"]


def plan(request: Request) -> Planned:
    """Plan `ctc_alpha` (the losses and alpha) or the gradient op.

    Returns:
        Losses `(N,)` and alpha `(N, T, states)`, or the gradient `(T, N, C)`; and the launches.

    Raises:
        ArgumentError: if the call has `out=`.
        ShapeError: if an operand has the wrong shape or is not contiguous.
        UnsupportedDType: if log_probs is neither float32 nor float64, or the device has no float64.
    """
    layouts = {o.name: m for o, m in request.tensors}
    log_probs, states = _check_operands(request, layouts)
    times, samples, _ = log_probs.shape
    forward = request.record.name == "ctc_alpha"
    shapes = [(samples,), (samples, times, states)] if forward else [log_probs.shape]
    results = tuple(meta(log_probs.dtype, shape, None, request.device) for shape in shapes)
    if not results[0].numel:
        return Planned(results)
    return PLANS[request.capabilities.style](request, log_probs, states, results)


def _plan_opencl(request: Request, log_probs: Meta, states: int, results: tuple[Meta, ...]) -> Planned:
    """Plan the launches in OpenCL; see `triton.ctc.plan` for the arguments."""
    times, samples, classes = log_probs.shape
    sizes = (times, samples, classes, states, request.static("blank"), *log_probs.strides)
    geometry = pack_longs(sizes)
    caps = request.capabilities
    group = caps.group_size(64)
    value, integer = Slot(log_probs.dtype.name), Slot("int64", "index")
    nd_range = ((samples * group,), (group,))
    work = samples * times * states * 32
    if request.record.name == "ctc_alpha":
        step = _step(
            request, "alpha", "alpha", (0, 1, 2, 3, 4), (value, integer, integer, value, value), geometry, nd_range,
            work,
        )  # fmt: skip
        return Planned(results, (step,))
    scratch_buffer = 7
    beta = _step(
        request, "beta", "beta", (1, 2, 3, scratch_buffer), (value, integer, integer, value), geometry, nd_range, work
    )
    slots = (value, value, integer, integer, value, value, value, value)
    rows = times * samples
    local, schedule = caps.group_size(128), "rows" if caps.takes_runs else "grid"
    nd_range = (rows if caps.takes_runs else -(-rows * classes // local) * local,), (local,)
    gradient = _step(
        request, "gradient", schedule, (0, 1, 2, 3, 4, 5, 6, scratch_buffer), slots,
        geometry, nd_range, rows * (classes + states) * 8,
    )  # fmt: skip
    return Planned(results, (beta, gradient), (rows * states * log_probs.dtype.itemsize,))


def _check_operands(request: Request, layouts: dict[str, Meta]) -> tuple[Meta, int]:
    """Check every operand; return the layout of log_probs `(T, N, C)` and the number of states in alpha."""
    where, log_probs = request.where(), layouts["log_probs"]
    if request.into is not None:
        raise ArgumentError(f"{where}: does not support out=")
    if log_probs.ndim != 3:
        raise ShapeError(f"{where}: log_probs are (T, N, C)")
    if log_probs.dtype not in (dtypes.float32, dtypes.float64):
        raise UnsupportedDType(f"{where}: takes float32 and float64, not {log_probs.dtype.name}; use .float()")
    if log_probs.dtype is dtypes.float64 and not request.capabilities.fp64:
        raise UnsupportedDType(f"{where}: the device has no float64; use float32 there")
    times, samples, _ = log_probs.shape
    alpha = layouts.get("alpha")
    states = alpha.shape[2] if alpha is not None else request.static("states")
    assert isinstance(states, int)
    expected_shapes = {
        "places": (samples, 3), "grad": (samples,), "losses": (samples,), "alpha": (samples, times, states),
    }  # fmt: skip
    for name, layout in layouts.items():
        if name != "log_probs" and (not layout.contiguous or layout.shape != expected_shapes.get(name, layout.shape)):
            raise ShapeError(
                f"{where}: {name} must be contiguous, of shape {list(expected_shapes.get(name, layout.shape))}"
            )
        is_integer = name in ("places", "targets")
        if layout.dtype is not (dtypes.int64 if is_integer else log_probs.dtype):
            raise UnsupportedDType(f"{where}: {name} must be {'int64' if is_integer else log_probs.dtype.name}")
    return log_probs, states


def _step(
    request: Request, entry: str, schedule: str, buffers: tuple[int, ...], slots: tuple[Slot, ...], geometry: bytes,
    nd_range: tuple[tuple[int, ...], tuple[int, ...]], work: int,
) -> Step:  # fmt: skip
    """Build the launch of the kernel `entry`."""
    text = request.text
    # GROUP: of alpha and beta, where the work-items of a group share a sample's states.
    group = (("GROUP", str(nd_range[1][0])),) if entry in ("alpha", "beta") else ()
    defines = ((f"SCHEDULE_{schedule.upper()}", "1"), ("BUFFERS", str(len(buffers))), *group)
    element = request.tensors[0][1].dtype.compute
    kernel = Instance("ctc", text.source, f"ctc_{entry}", element, 1, slots, defines, ("exp", "log"))
    return Step(kernel, buffers, geometry, *nd_range, work)


def _plan_triton(request: Request, log_probs: Meta, states: int, results: tuple[Meta, ...]) -> Planned:
    from .triton import ctc as triton  # lazy: Triton devices only

    return triton.plan(request, log_probs, states, results)


PLANS = ByStyle("CTC", cpu=_plan_opencl, gpu=_plan_opencl, triton=_plan_triton)
