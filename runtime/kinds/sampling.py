"""Images read at places that a tensor gives (`codegen/specs/sampling.yaml`), and the gradients of that.

Schedules: `read` and `places`, where a work-item has blocks of places (CPU: a vector of them at a time; GPU: one place)
and goes through the channels with the same weights; `input`, where it owns planes of the gradient (on a GPU of each a
range), walks the places in order and adds what is its own: no atomics, and the same bits every time.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .index import borrowed
from .pointwise import elementwise_parts

__all__ = ["plan"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_TAPS = (2, 1, 4)  # elements that a sample reads along a dimension, by mode
_MOST = 2**31 - 1  # elements of a plane
_READERS = 64  # work-items of a group of a GPU


def plan(request: Request) -> Planned:
    """The result's layout and the launches. Raises `ShapeError`, `DTypeError`, `ArgumentError`, `NotSupported`."""
    given = {o.name: m for o, m in request.tensors}
    grid, image = given["grid"], _image(request, given)
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    batch, channels, *spatial = image
    count, places = len(spatial), prod(grid.shape[1:-1])
    dtype = grid.dtype
    if dtype.kind != "f" or any(m.dtype is not dtype for m in given.values()):
        raise DTypeError(f"{request.where()}: takes operands of one floating dtype; convert with .to()")
    if count not in (2, 3) or grid.ndim != count + 2 or (grid.shape[0], grid.shape[-1]) != (batch, count):
        raise ShapeError(f"{request.where()}: images of {list(image)} need places ({batch}, ..., {count})")
    if not all(m.contiguous for m in given.values()):
        raise ArgumentError(f"{request.where()}: the operands must be contiguous; call contiguous()")
    if prod(spatial) > _MOST:
        raise NotSupported(f"{request.where()}: an image has {_MOST} elements at most")
    mode, padding = (_number(request, name, known) for name, known in (("mode", _MODES), ("padding", _PADDINGS)))
    if mode == 2 and count == 3:
        raise NotSupported(f"{request.where()}: bicubic is for images of two dimensions")
    entry = {"sample_grid": "read", "sample_grid_input": "input"}.get(request.record.name, "places")
    shape = {"read": (batch, channels, *grid.shape[1:-1]), "input": image, "places": grid.shape}[entry]
    if "grad" in given and given["grad"].shape != (batch, channels, *grid.shape[1:-1]):
        raise ShapeError(f"{request.where()}: grad must have shape {[batch, channels, *grid.shape[1:-1]]}")
    out = meta(dtype, shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not prod(spatial):
        raise ShapeError(f"{request.where()}: there is nothing to sample")
    sums = out  # where the input's gradients are added: each is rounded once
    if entry == "input" and dtype.itemsize == 2:
        sums = meta(dtypes.float32, shape, None, request.device)
    slots = (*(slot(m, "value") for m in given.values()), slot(sums, "value"))
    buffers = tuple(range(len(slots) - 1)) + ((len(slots) - 1,) if sums is out else (len(slots),))
    sizes = (batch, channels, places, *reversed(spatial))
    constants = {
        "DIMS": count, "MODE": mode, "PADDING": padding, "ALIGN": int(bool(request.static("align"))),
    }  # fmt: skip
    if request.capabilities.style == "triton":
        from .triton import sampling as triton

        step = triton.step(request, entry, slots, buffers, sizes, constants, _TAPS[mode])
    else:
        step = _step(request, entry, slots, buffers, sizes, constants)
    if sums is out:
        return Planned((out,), (step,))
    rounding = borrowed(request, "copy", sums, out, (dtype,), (len(slots), len(slots) - 1))
    return Planned((out,), (step, *rounding), (sums.nbytes,))


def _image(request: Request, given: dict[str, Meta]) -> tuple[int, ...]:
    """The shape of the images."""
    if "input" in given:
        return given["input"].shape
    return tuple(request.static("shape"))  # type: ignore[arg-type]


def _number(request: Request, name: str, known: tuple[str, ...]) -> int:
    word = request.static(name)
    if word not in known:
        raise ArgumentError(f"{request.where()}: {name} is one of {', '.join(known)}, not {word!r}")
    return known.index(word)


def _step(
    request: Request,
    entry: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    sizes: tuple[int, ...],
    constants: dict[str, int],
) -> Step:
    able, record = request.capabilities, request.record
    batch, channels, places, *spatial = sizes
    plane, taps = prod(spatial), _TAPS[constants["MODE"]] ** constants["DIMS"]
    element = dtypes.BY_NAME[slots[0].dtype].compute
    work = batch * channels * (places * taps + (plane if entry == "input" else 0))
    gpu = able.style == "gpu"
    lanes = 1 if gpu else able.lanes // 2 if element == "double" else able.lanes
    while lanes > max(places, 2):
        lanes //= 2
    parts, local = (1, min(_READERS, able.max_group)) if gpu else (elementwise_parts(work, able.cores), 1)
    blocks, reach = -(-places // lanes), plane
    if entry == "input":
        planes = batch * channels
        chunk, items = (1, planes) if gpu else split(planes, min(parts, able.cores))
        reach, ranges = split(plane, max(1, able.cores * local // planes)) if gpu else (plane, 1)
        size, group = (-(-items // local) * local, ranges), (local, 1)
    else:
        chunk, items = (1, batch * blocks) if gpu else split(batch * blocks, parts)
        size, group = (-(-items // local) * local,), (local,)  # type: ignore[assignment]
    geometry = pack_longs((batch, channels, places, plane, blocks, chunk, reach, *spatial, *(1,) * (3 - len(spatial))))
    defines = {f"SCHEDULE_{entry.upper()}": 1, "ONE": int(not gpu), **constants}
    image = dtypes.BY_NAME[slots[1 if entry == "places" else 0].dtype]
    defines["STRAIGHT"] = image.itemsize if entry != "input" and image.storage == element else 0
    defines["INDEX"] = "long" if element == "double" else "int"  # type: ignore[assignment]
    made = Instance(
        "sampling", record.texts[request.device.driver.target].source, f"sampling_{entry}", element, lanes, slots,
        tuple((k, str(v)) for k, v in defines.items()), ("floor", "round"),
    )  # fmt: skip
    return Step(made, buffers, geometry, size, group, work)
