"""Plan ops on all pairs of rows of two matrices (`codegen/specs/distances.yaml`): distances and their gradients.

The matrices are x1, `(B, P, M)`, and x2, `(B, R, M)`. The kernel `dots` sums over the M elements of each pair of rows,
and has a result of shape `(B, P, R)`. The kernel `sums` sums over the R rows of x2, with a result of `(B, P, M)`.

On CPUs a work-item of `dots` packs a panel of x2 in vectors, and computes a block of rows by a panel in registers; one
of `sums` computes a block of rows by a vector of their elements. On OpenCL GPUs a work-item computes one element.
`triton/pairs.py` plans for Triton. Results have the operands' dtype; half types are summed in float32.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from ..schedules import choose
from . import Planned, Request, pointwise
from .elementwise import elementwise_parts

__all__ = ["LAUNCHES", "POWERS", "plan"]

POWERS = {"0": 0, "1": 1, "2": 2, "any": 3, "count": 4, "max": 5}  # POWER of the kernels
_ROOTS = {POWERS["2"]: 1, POWERS["any"]: 2}  # ROOT of the kernels, which take the root of a norm's sum; else 0
_DOTS_ROWS, _DOTS_VECTORS = 6, 2  # register tile of `dots`
_SUM_ROWS = 6  # rows of the register tile of `sums`, which is one vector wide

# The operands in the order of a kernel's buffers.
_BUFFERS = {
    "dots": ("x1", "x2", "left", "right", "distance"),
    "sums": ("weight", "x1", "x2", "right", "distance"),
}


def plan(request: Request) -> Planned:
    """Plan one op on all pairs of rows of `(B, P, M)` and `(B, R, M)` operands.

    Raises:
        ArgumentError: An operand is missing, `power` is unknown, or the call has `out=`.
        DTypeError: The operands have no common floating dtype.
        ShapeError: A shape does not fit, or an operand is not contiguous.
    """
    kind = "sums" if request.record.name == "pair_sums" else "dots"
    layouts = {o.name: m for o, m in request.tensors}
    power = request.static("power")
    if power not in POWERS or "x1" not in layouts or "x2" not in layouts:
        raise ArgumentError(f"{request.where()}: takes two tensors and a power of {', '.join(POWERS)}, not {power!r}")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: does not support out=")
    first, second = layouts["x1"], layouts["x2"]
    if first.ndim != 3 or second.ndim != 3 or first.shape[::2] != second.shape[::2]:
        raise ShapeError(f"{request.where()}: takes (B, P, M) and (B, R, M)")
    batch, rows, m = first.shape
    columns = second.shape[1]
    matrix = (batch, rows, columns)
    expected_shapes = {"left": first.shape, "right": second.shape, "distance": matrix, "weight": matrix}
    for name, layout in layouts.items():
        if layout.dtype is not first.dtype or layout.dtype.kind != "f":
            raise DTypeError(f"{request.where()}: operands are of one floating dtype; convert with .to()")
        if layout.shape != expected_shapes.get(name, layout.shape) or not layout.contiguous:
            raise ShapeError(
                f"{request.where()}: {name} must be contiguous, of shape {list(expected_shapes.get(name, ()))}"
            )
    out = meta(first.dtype, first.shape if kind == "sums" else matrix, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not all(layout.numel for layout in layouts.values()):  # the sums are empty
        fill = Request(registry["zero_like"], (out,), (), request.device, (out,))
        result_position = len(request.tensors)
        return Planned(
            (out,),
            tuple(replace(s, buffers=(result_position, result_position)) for s in pointwise.plan(fill).steps),
        )
    return _Builder(request, kind, layouts, out, POWERS[str(power)]).plan(batch, rows, columns, m)


class _Builder:
    """The launches of one call, and the scratch buffers that they need."""

    def __init__(self, request: Request, kind: str, layouts: dict[str, Meta], out: Meta, power: int):
        self.request, self.kind, self.layouts, self.out, self.power = request, kind, layouts, out, power
        self.caps = request.capabilities
        self.dtype: DType = out.dtype
        self.element = dtypes.float32 if self.dtype.itemsize == 2 else self.dtype
        self.is_general_power = power == POWERS["any"]
        is_signed = bool(request.optional_static("signed", False))
        is_norm = request.record.name == "pair_norms"
        self.flags = {
            "POWER": power, "SIGNED": int(is_signed), "ROOT": _ROOTS.get(power, 0) if is_norm else 0,
            "LEFT": int("left" in layouts), "RIGHT": int("right" in layouts), "PICK": int("distance" in layouts),
        }  # fmt: skip
        names = [o.name for o, _ in request.tensors]
        # The kernel does not read absent operands; another buffer stands in for them.
        self.buffers = [names.index(n) if n in layouts else names.index("x1") for n in _BUFFERS[kind]] + [len(names)]
        self.numbers = (0,) if self.is_general_power else ()  # the exponent
        self.scratch: list[int] = []
        self.steps: list[Step] = []

    def plan(self, batch: int, rows: int, columns: int, m: int) -> Planned:
        """Plan the call. The sizes are B, P, R and M."""
        LAUNCHES[self.caps.style](self, batch, rows, columns, m)
        return Planned((self.out,), tuple(self.steps), tuple(self.scratch))

    def add_triton(self, batch: int, rows: int, columns: int, m: int) -> None:
        """Add the launch for Triton."""
        from .triton import pairs as triton  # lazy: Triton devices only

        step = triton.step(
            self.request, self.kind, self.element.compute, self.slots(), tuple(self.buffers), self.flags,
            self.numbers, (batch, rows, columns, m),
        )  # fmt: skip
        self.steps.append(step)

    def add_grid(self, batch: int, rows: int, columns: int, m: int) -> None:
        """Add the launch on GPUs: one work-item for each element of the result."""
        params = choose(self.request, "pairs", {"rows": rows, "columns": columns, "m": m}, self.dtype.name)
        local = min(params["group"], self.caps.max_group)
        size, work = (-(-self.out.numel // local) * local,), batch * rows * columns * m
        self.launch(f"grid_{self.kind}", 1, (batch, rows, columns, m, 1, 1), size, (local,), work)

    def add_vectors(self, batch: int, rows: int, columns: int, m: int) -> None:
        """Add the launch on CPUs: `dots` or `sums`."""
        work = batch * rows * columns * m
        if self.kind == "dots":
            self.add_dots(batch, rows, columns, m, work)
            return
        parts = max(1, elementwise_parts(work // 4, self.caps.cores) // batch)
        self.flags["MR"] = 1 if self.is_general_power else _SUM_ROWS
        chunk, items = split(rows, parts, self.flags["MR"])
        geometry = (batch, rows, columns, m, chunk, 1)
        self.launch("sums", self.lanes(), geometry, (items, batch), (1, 1), work)

    def add_dots(self, batch: int, rows: int, columns: int, m: int, work: int) -> None:
        """Add the launch of `dots` on CPUs.

        A work-item computes a panel of x2, or if there are few panels, a block of rows by a panel. It packs the panel
        itself: a separate launch would either run on one core or wake all cores once more.
        """
        lanes = self.lanes()
        # A general power takes so long, and so much code, that a register tile gains nothing.
        mr, max_nv = (1, 1) if self.is_general_power else (_DOTS_ROWS, _DOTS_VECTORS)
        nv = max_nv if columns > lanes else 1
        panel_width = nv * lanes
        panels = -(-columns // panel_width)
        self.flags |= {"MR": mr, "NV": nv, "NR": panel_width}
        parts = max(1, -(-elementwise_parts(work // 4, self.caps.cores) // (batch * panels)))
        chunk, items = split(rows, parts, self.flags["MR"])
        packed_elements = batch * panels * items * m * panel_width * (1 + self.flags["RIGHT"])
        self.scratch.append(packed_elements * self.element.itemsize)
        self.buffers.append(len(self.request.tensors) + len(self.scratch))
        geometry = (batch, rows, columns, m, chunk, panels)
        slots = (*self.slots(), Slot(self.element.name))
        self.launch("dots", lanes, geometry, (items, batch * panels), (1, 1), work, slots)

    def lanes(self) -> int:
        """Return the elements of a vector register in the compute type."""
        return self.caps.lanes // 2 if self.element.itemsize == 8 else self.caps.lanes

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots of five operands and the result."""
        return (Slot(self.dtype.name),) * 6

    def launch(
        self, entry: str, lanes: int, geometry: tuple[int, ...], size: tuple[int, ...], local: tuple[int, ...],
        work: int, slots: tuple[Slot, ...] | None = None,
    ) -> None:  # fmt: skip
        """Append the launch of the OpenCL kernel `entry`."""
        buffers, slots = tuple(self.buffers), slots or self.slots()
        text = self.request.text
        defines = {"BUFFERS": len(buffers), "NUMBERS": len(self.numbers), **self.flags}
        functions = {"abs"} | ({"pow"} if self.is_general_power else set())
        functions |= {"sqrt"} if self.flags["ROOT"] == _ROOTS[POWERS["2"]] else set()
        all_defines = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
        instance = Instance(
            "pairs", text.source, f"pairs_{entry}", self.element.compute, lanes, slots, all_defines,
            tuple(sorted(functions)),
        )  # fmt: skip
        self.steps.append(Step(instance, buffers, pack_longs(geometry), size, local, work // 8, self.numbers))


LAUNCHES = ByStyle("distances of pairs", cpu=_Builder.add_vectors, gpu=_Builder.add_grid, triton=_Builder.add_triton)
