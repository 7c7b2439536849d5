"""Plan `grid_sample` and its gradients (`codegen/specs/sampling.yaml`).

A *point* is one sampling position: 2 or 3 coordinates along the last dimension of `grid`. A *plane* is one channel of
one image. Kernels:

- `read`: the forward pass. Points are processed in blocks: one vector of points on CPUs, a single point on GPUs. A
  work-item computes the interpolation weights of a block once and applies them to all channels.
- `places`: the gradient of the grid. The work is divided as in `read`.
- `input`: the gradient of the images. Each element of the gradient belongs to one work-item: on CPUs a work-item has
  whole planes, on GPUs a range of one plane. It iterates over all points in order and adds the contributions to its own
  elements. This needs no atomics, and equal calls give equal bits.

`triton/sampling.py` builds the launches for Triton.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, DTypeError, NotSupported, ShapeError
from ..layout import pack_longs, split
from . import Planned, Request, slot
from .elementwise import elementwise_parts
from .index import pointwise_steps

__all__ = ["LAUNCHES", "plan"]

_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_TAPS = (2, 1, 4)  # elements that a sample reads along each dimension; one entry per mode in _MODES
_MAX_PLANE = 2**31 - 1  # elements of an image plane, at most
_GROUP = 64  # work-items per GPU work-group


def plan(request: Request) -> Planned:
    """Plan a sampling op: the result's layout, its launches and scratch.

    The gradient of 16-bit images is summed in float32 and rounded once at the end.

    Raises:
        ArgumentError: if an operand is not contiguous, a mode is unknown, or the call has `out=`.
        DTypeError: if the operands are not of one floating dtype.
        ShapeError: if grid is not `(N, ..., 2)` for images `(N, C, H, W)`, or `(N, ..., 3)` for `(N, C, D, H, W)`.
        NotSupported: for an image with too many elements, or bicubic sampling in three dimensions.
    """
    layouts = {o.name: m for o, m in request.tensors}
    grid, image_shape = layouts["grid"], _image_shape(request, layouts)
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    batch, channels, *spatial = image_shape
    num_spatial, points = len(spatial), prod(grid.shape[1:-1])
    dtype = grid.dtype
    if dtype.kind != "f" or any(m.dtype is not dtype for m in layouts.values()):
        raise DTypeError(f"{request.where()}: takes operands of one floating dtype; convert with .to()")
    if (
        num_spatial not in (2, 3)
        or grid.ndim != num_spatial + 2
        or (grid.shape[0], grid.shape[-1]) != (batch, num_spatial)
    ):
        raise ShapeError(
            f"{request.where()}: images of {list(image_shape)} need a grid of shape ({batch}, ..., {num_spatial})"
        )
    if not all(m.contiguous for m in layouts.values()):
        raise ArgumentError(f"{request.where()}: the operands must be contiguous; call contiguous()")
    if prod(spatial) > _MAX_PLANE:
        raise NotSupported(f"{request.where()}: an image has {_MAX_PLANE} elements at most")
    mode, padding = (_choice_index(request, name, known) for name, known in (("mode", _MODES), ("padding", _PADDINGS)))
    if mode == 2 and num_spatial == 3:
        raise NotSupported(f"{request.where()}: bicubic is for images of two dimensions")
    entry = {"sample_grid": "read", "sample_grid_input": "input"}.get(request.record.name, "places")
    shape = {"read": (batch, channels, *grid.shape[1:-1]), "input": image_shape, "places": grid.shape}[entry]
    if "grad" in layouts and layouts["grad"].shape != (batch, channels, *grid.shape[1:-1]):
        raise ShapeError(f"{request.where()}: grad must have shape {[batch, channels, *grid.shape[1:-1]]}")
    out = meta(dtype, shape, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not prod(spatial):
        raise ShapeError(f"{request.where()}: there is nothing to sample")
    accumulator = out  # 16-bit gradients of images are summed in float32 scratch, and `rounding` converts the sums
    if entry == "input" and dtype.itemsize == 2:
        accumulator = meta(dtypes.float32, shape, None, request.device)
    slots = (*(slot(m, "value") for m in layouts.values()), slot(accumulator, "value"))
    buffers = tuple(range(len(slots) - 1)) + ((len(slots) - 1,) if accumulator is out else (len(slots),))
    sizes = (batch, channels, points, *reversed(spatial))
    constants = {
        "DIMS": num_spatial, "MODE": mode, "PADDING": padding, "ALIGN": int(bool(request.static("align"))),
    }  # fmt: skip
    step = LAUNCHES[request.capabilities.style](request, entry, slots, buffers, sizes, constants)
    if accumulator is out:
        return Planned((out,), (step,))
    rounding = pointwise_steps(request, "copy", accumulator, out, (dtype,), (len(slots), len(slots) - 1))
    return Planned((out,), (step, *rounding), (accumulator.nbytes,))


def _image_shape(request: Request, layouts: dict[str, Meta]) -> tuple[int, ...]:
    """Return the shape of the images, `(N, C, *spatial)`."""
    if "input" in layouts:
        return layouts["input"].shape
    return tuple(request.static("shape"))


def _choice_index(request: Request, name: str, choices: tuple[str, ...]) -> int:
    """Return the index of the static argument `name` in `choices`; raise `ArgumentError` if it is not one of them."""
    choice = request.static(name)
    if choice not in choices:
        raise ArgumentError(f"{request.where()}: {name} is one of {', '.join(choices)}, not {choice!r}")
    return choices.index(choice)


def _opencl_step(
    request: Request,
    entry: str,
    slots: tuple[Slot, ...],
    buffers: tuple[int, ...],
    sizes: tuple[int, ...],
    constants: dict[str, int],
) -> Step:
    """Build the OpenCL launch of the kernel `entry`.

    `sizes` are batch, channels, points per image, and the spatial sizes from the innermost to the outermost.
    """
    caps = request.capabilities
    batch, channels, points, *spatial = sizes
    plane, taps = prod(spatial), _TAPS[constants["MODE"]] ** constants["DIMS"]
    element = dtypes.BY_NAME[slots[0].dtype].compute
    work = batch * channels * (points * taps + (plane if entry == "input" else 0))
    takes_runs, group_size = caps.takes_runs, caps.group_size(_GROUP)
    lanes = caps.vector_lanes(8 if element == "double" else 4)
    while lanes > max(points, 2):
        lanes //= 2
    parts = elementwise_parts(work, caps.cores)
    blocks, range_size = -(-points // lanes), plane
    if entry == "input":
        planes = batch * channels
        chunk, items = split(planes, min(parts, caps.cores) if takes_runs else planes)
        range_size, ranges = split(plane, 1 if takes_runs else max(1, caps.cores * group_size // planes))
        global_size: tuple[int, ...] = (-(-items // group_size) * group_size, ranges)
        local_size: tuple[int, ...] = (group_size, 1)
    else:
        chunk, items = split(batch * blocks, parts if takes_runs else batch * blocks)
        global_size, local_size = (-(-items // group_size) * group_size,), (group_size,)
    geometry = pack_longs(
        (batch, channels, points, plane, blocks, chunk, range_size, *spatial, *(1,) * (3 - len(spatial)))
    )
    defines: dict[str, int | str] = {f"SCHEDULE_{entry.upper()}": 1, "ONE": int(takes_runs), **constants}
    image_dtype = dtypes.BY_NAME[slots[1 if entry == "places" else 0].dtype]
    defines["GATHER_BYTES"] = image_dtype.itemsize if entry != "input" and image_dtype.storage == element else 0
    defines["INDEX"] = "long" if element == "double" else "int"
    kernel = Instance(
        "sampling", request.text.source, f"sampling_{entry}", element, lanes, slots,
        tuple((k, str(v)) for k, v in defines.items()), ("floor", "round"),
    )  # fmt: skip
    return Step(kernel, buffers, geometry, global_size, local_size, work)


def _triton_step(
    request: Request, entry: str, slots: tuple[Slot, ...], buffers: tuple[int, ...], sizes: tuple[int, ...],
    constants: dict[str, int],
) -> Step:  # fmt: skip
    from .triton import sampling as triton  # lazy: Triton devices only

    return triton.step(request, entry, slots, buffers, sizes, constants, _TAPS[constants["MODE"]])


LAUNCHES = ByStyle("sampling", cpu=_opencl_step, gpu=_opencl_step, triton=_triton_step)
