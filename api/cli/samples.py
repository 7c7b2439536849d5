"""Arguments of an op for commands that have to call it: of fitting roles, shapes and ranges, drawn from its spec."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..bounds import unchecked
from ..codegen.model import MISSING, Op, Param
from ..runtime.autograd import engine
from ..runtime.context import state
from ..runtime.device import Device
from ..runtime.dtypes import DType

__all__ = ["ROWS", "SHAPE", "arguments", "arrays", "collecting", "numbers", "statics"]

ROWS, LENGTH = 5, 7
SHAPE = (ROWS, LENGTH)
_LETTERS = {".": (2,)}
# Windows over planes of SHAPE, and how many there are.
_GEOMETRY: dict[str, Any] = {
    "kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "counted": True, "divisor": 0
}  # fmt: skip
_WINDOWS = (2, 3)


def shapes(op: Op, shape: tuple[int, ...] = SHAPE) -> dict[str, tuple[int, ...]]:
    """A shape for each tensor operand, by name."""
    if op.kind == "contraction":
        from ..codegen.kinds.contraction import letters

        terms = letters(op)
        sizes = {c: 3 + i for i, c in enumerate(sorted({c for t in terms.values() for c in t if c != "."}))}
        named = {"m": shape[0], "n": shape[-1], "k": sum(shape)}
        sizes = {letter: named.get(letter, size) for letter, size in sizes.items()}
        return {
            name: (_LETTERS["."] if "..." in t else ()) + tuple(sizes[c] for c in t if c != ".")
            for name, t in terms.items()
        }
    if op.kind == "window":
        covering = op.fields["window"]["over"] == "covering"
        own = (2, 12, 6) if op.operands[0].name == "columns" else (2, 3, *(_WINDOWS if covering else SHAPE))
        return {p.name: own for p in op.operands}
    scopes = {"column": shape[-1:], "row": shape[:-1]}
    return {p.name: scopes.get(p.scope, shape) for p in op.operands if p.is_tensor}


def arrays(op: Op, rng: np.random.Generator, shape: tuple[int, ...] = SHAPE) -> dict[str, np.ndarray[Any, Any]]:
    """Values for each tensor operand: float64, bool for masks, int64 for indices."""
    ranges = op.fields.get("sample", {})
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, own in shapes(op, shape).items():
        kind = op.param(name).type
        if kind == "mask":
            found[name] = rng.random(own) > 0.5
        elif kind == "index":
            found[name] = rng.integers(0, shape[-1] if shape else 1, own)
        else:
            low, high = ranges.get(name, (-2.0, 2.0))
            found[name] = rng.uniform(low, high, own)
    return found


def numbers(op: Op) -> dict[str, Any]:
    """A value for each number: its default, or the middle of its range."""
    found = {}
    for p in op.operands:
        if not p.is_tensor:
            low, high = op.fields.get("sample", {}).get(p.name, (0.5, 1.0))
            whole = p.type == "index" or op.dtypes in ("integer", "integral")
            middle: Any = 7 if whole else (low + high) / 2
            found[p.name] = middle if p.default is MISSING else p.default
    return found


def statics(op: Op, shape: tuple[int, ...] = SHAPE) -> dict[str, Any]:
    """A value for each static argument: its default, or one that fits `shape`."""
    if op.kind == "window":
        size = SHAPE if op.fields["window"]["over"] == "covering" else _WINDOWS
        return {p.name: {"size": size, **_GEOMETRY}[p.name] for p in op.statics}
    return {p.name: _static(p, shape) if p.default is MISSING else p.default for p in op.statics}


def _static(p: Param, shape: tuple[int, ...]) -> Any:
    if "Sequence[int]" in p.annotation:
        return {"normalized_shape": tuple(shape[-1:]), "dim": (0,)}.get(p.name, tuple(shape))
    fitting: dict[str, Any] = {"int": -1 if p.name.startswith("dim") else 1, "bool": False, "str": ""}
    return fitting.get(p.annotation)


def arguments(
    op: Op,
    device: Device,
    dtype: DType,
    rng: np.random.Generator,
    *,
    grad: bool = False,
    shape: tuple[int, ...] = SHAPE,
) -> dict[str, Any]:
    """An argument for every parameter, by name; with `grad`, value tensors require it."""
    from ..factories import tensor

    found: dict[str, Any] = {}
    values = arrays(op, rng, shape)
    for p in op.params:
        if p.name in values:
            own = dtype if p.type == "value" else None
            made = tensor(values[p.name], dtype=own, device=device, requires_grad=grad and p.type == "value")
            found[p.name] = [made, made.detach()] if p.role == "list" else made
    return {p.name: ({**found, **numbers(op), **statics(op, shape)})[p.name] for p in op.params}


@contextlib.contextmanager
def collecting(device: Device) -> Iterator[list[Any]]:
    """Calls on `device` launch nothing; the steps that they would have launched are listed instead."""
    driver: Any = device.driver
    driver.capabilities  # noqa: B018  (opens it)
    steps: list[Any] = []
    own = state()
    plans, own.plans = own.plans, {}

    def launcher(planned: Sequence[Any], scratch: Sequence[int]) -> Callable[..., None]:
        steps.extend(planned)
        return lambda tensors, numbers, stream: None

    driver.launcher = launcher
    try:
        with unchecked(device):
            yield steps
    finally:
        del driver.launcher
        own.plans = plans
        engine.forget_ones()  # what backward keeps was never filled either
