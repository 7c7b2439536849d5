"""Rows against rows (`codegen/specs/distances.yaml`): sums over the elements of rows (`dots`), or over rows (`sums`).

Schedules. CPU: for `dots`, a work-item lays out a panel of x2 by vectors, and a block of rows by a panel is computed in
registers; `sums` takes a block of rows by a vector of their elements. GPU: a work-item an element. Results are in the
operands' dtype, sums of half types in float32.
"""

from __future__ import annotations

from dataclasses import replace

from .. import dtypes
from ..backends.protocol import Instance, Slot, Step
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, ShapeError
from ..layout import pack_longs, split
from ..records import registry
from ..schedules import choose
from . import Planned, Request, planner
from .pointwise import elementwise_parts

__all__ = ["POWERS", "plan"]

POWERS = {"0": 0, "1": 1, "2": 2, "any": 3, "count": 4, "max": 5}
_ROWS, _VECTORS = 6, 2  # the register tile of `dots`
_SUM_ROWS = 6

# The operands in the order of a kernel's buffers.
_BUFFERS = {
    "dots": ("x1", "x2", "left", "right", "distance"),
    "sums": ("weight", "x1", "x2", "right", "distance"),
}


def plan(request: Request) -> Planned:
    """The result's layout and the launches."""
    kind = "sums" if request.record.name == "pair_sums" else "dots"
    given = {o.name: m for o, m in request.tensors}
    power = request.static("power")
    if power not in POWERS or "x1" not in given or "x2" not in given:
        raise ArgumentError(f"{request.where()}: takes two tensors and a power of {', '.join(POWERS)}, not {power!r}")
    if request.into is not None:
        raise ArgumentError(f"{request.where()}: has no form that writes into a given tensor")
    first, second = given["x1"], given["x2"]
    if first.ndim != 3 or second.ndim != 3 or first.shape[::2] != second.shape[::2]:
        raise ShapeError(f"{request.where()}: takes (B, P, M) and (B, R, M)")
    batch, rows, m = first.shape
    columns = second.shape[1]
    matrix = (batch, rows, columns)
    wanted = {"left": first.shape, "right": second.shape, "distance": matrix, "weight": matrix}
    for name, layout in given.items():
        if layout.dtype is not first.dtype or layout.dtype.kind != "f":
            raise DTypeError(f"{request.where()}: operands are of one floating dtype; convert with .to()")
        if layout.shape != wanted.get(name, layout.shape) or not layout.contiguous:
            raise ShapeError(f"{request.where()}: {name} must be contiguous, of shape {list(wanted.get(name, ()))}")
    out = meta(first.dtype, first.shape if kind == "sums" else matrix, None, request.device)
    if not out.numel:
        return Planned((out,))
    if not all(layout.numel for layout in given.values()):  # nothing is summed
        inner = Request(registry["zero_like"], (out,), (), request.device, (out,))
        at = len(request.tensors)
        return Planned((out,), tuple(replace(s, buffers=(at, at)) for s in planner("pointwise")(inner).steps))
    return _Builder(request, kind, given, out, POWERS[str(power)]).plan(batch, rows, columns, m)


class _Builder:
    """Collects the launches of one call and the scratch they need."""

    def __init__(self, request: Request, kind: str, given: dict[str, Meta], out: Meta, power: int):
        self.request, self.kind, self.given, self.out, self.power = request, kind, given, out, power
        self.able = request.capabilities
        self.dtype: DType = out.dtype
        self.element = dtypes.float32 if self.dtype.itemsize == 2 else self.dtype
        signed = "signed" in request.record.statics and bool(request.static("signed"))
        norm = request.record.name == "pair_norms"
        self.flags = {
            "POWER": power, "SIGNED": int(signed), "ROOT": {2: 1, 3: 2}.get(power, 0) if norm else 0,
            "LEFT": int("left" in given), "RIGHT": int("right" in given), "PICK": int("distance" in given),
        }  # fmt: skip
        names = [o.name for o, _ in request.tensors]
        # What is not given is never read: some buffer stands for it.
        self.buffers = [names.index(n) if n in given else names.index("x1") for n in _BUFFERS[kind]] + [len(names)]
        self.numbers = (0,) if power == 3 else ()
        self.scratch: list[int] = []
        self.steps: list[Step] = []

    def plan(self, batch: int, rows: int, columns: int, m: int) -> Planned:
        if self.able.style == "triton":
            from .triton import pairs as triton

            step = triton.step(
                self.request, self.kind, self.element.compute, self.slots(), tuple(self.buffers), self.flags,
                self.numbers, (batch, rows, columns, m),
            )  # fmt: skip
            return Planned((self.out,), (step,))
        work = batch * rows * columns * m
        if self.able.style == "gpu":
            chosen = choose(self.request, "pairs", {"rows": rows, "columns": columns, "m": m}, self.dtype.name)
            local = min(chosen["group"], self.able.max_group)
            size = (-(-self.out.numel // local) * local,)
            self.launch(f"grid_{self.kind}", 1, (batch, rows, columns, m, 1, 1), size, (local,), work)
        elif self.kind == "dots":
            self.dots(batch, rows, columns, m, work)
        else:
            parts = max(1, elementwise_parts(work // 4, self.able.cores) // batch)
            self.flags["MR"] = 1 if self.power == 3 else _SUM_ROWS
            chunk, items = split(rows, parts, self.flags["MR"])
            geometry = (batch, rows, columns, m, chunk, 1)
            self.launch("sums", self.lanes(), geometry, (items, batch), (1, 1), work)
        return Planned((self.out,), tuple(self.steps), tuple(self.scratch))

    def dots(self, batch: int, rows: int, columns: int, m: int, work: int) -> None:
        """A panel of x2 a work-item, or a block of rows by it where there are few panels. It packs the panel itself: a
        launch of its own for that would be one core's work, or would wake the cores twice."""
        lanes = self.lanes()
        # Powers of any order take so long, and so much code, that a register tile of them gains nothing.
        tall, wide = (1, 1) if self.power == 3 else (_ROWS, _VECTORS)
        vectors = wide if columns > lanes else 1
        width = vectors * lanes
        panels = -(-columns // width)
        self.flags |= {"MR": tall, "NV": vectors, "NR": width}
        parts = max(1, -(-elementwise_parts(work // 4, self.able.cores) // (batch * panels)))
        chunk, items = split(rows, parts, self.flags["MR"])
        packed = batch * panels * items * m * width * (1 + self.flags["RIGHT"])
        self.scratch.append(packed * self.element.itemsize)
        self.buffers.append(len(self.request.tensors) + len(self.scratch))
        geometry = (batch, rows, columns, m, chunk, panels)
        slots = (*self.slots(), Slot(self.element.name))
        self.launch("dots", lanes, geometry, (items, batch * panels), (1, 1), work, slots)

    def lanes(self) -> int:
        return self.able.lanes // 2 if self.element.itemsize == 8 else self.able.lanes

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(self.dtype.name),) * 6

    def launch(
        self, entry: str, lanes: int, geometry: tuple[int, ...], size: tuple[int, ...], local: tuple[int, ...],
        work: int, slots: tuple[Slot, ...] | None = None,
    ) -> None:  # fmt: skip
        buffers, slots = tuple(self.buffers), slots or self.slots()
        text = self.request.record.texts[self.request.device.driver.target]
        defines = {"BUFFERS": len(buffers), "NUMBERS": len(self.numbers), **self.flags}
        functions = {"abs", *(("pow",) if self.power == 3 else ()), *(("sqrt",) if self.flags["ROOT"] == 1 else ())}
        given = ((f"SCHEDULE_{entry.upper()}", "1"), *((k, str(v)) for k, v in defines.items()))
        made = Instance(
            "pairs", text.source, f"pairs_{entry}", self.element.compute, lanes, slots, given, tuple(sorted(functions))
        )
        self.steps.append(Step(made, buffers, pack_longs(geometry), size, local, work // 8, self.numbers))
