"""Sample arguments of an op, drawn from its spec, for the commands that call ops: right roles, shapes and ranges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..codegen.kinds.contraction import letters
from ..codegen.model import MISSING, Op, Param
from ..creation.from_data import tensor
from ..indexing.bounds import unchecked
from ..runtime.autograd import engine
from ..runtime.backends.protocol import Step
from ..runtime.context import state
from ..runtime.device import Device
from ..runtime.dtypes import Array, DType

__all__ = ["ROWS", "SHAPE", "arguments", "arrays", "capture_steps", "numbers", "operand_list", "statics"]

ROWS, LENGTH = 5, 7
SHAPE = (ROWS, LENGTH)
_LETTERS = {".": (2,)}
# The geometry of windows over images of SHAPE, and the number of windows along each dimension.
_GEOMETRY: dict[str, object] = {
    "kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "counted": True, "divisor": 0
}  # fmt: skip
_WINDOWS = (2, 3)


def shapes(op: Op, shape: tuple[int, ...] = SHAPE) -> dict[str, tuple[int, ...]]:
    """Return a shape for each tensor operand, by name."""
    if op.kind == "contraction":
        terms = letters(op)
        sizes = {c: 3 + i for i, c in enumerate(sorted({c for t in terms.values() for c in t if c != "."}))}
        fixed_sizes = {"m": shape[0], "n": shape[-1], "k": sum(shape)}
        sizes = {letter: fixed_sizes.get(letter, size) for letter, size in sizes.items()}
        return {
            name: (_LETTERS["."] if "..." in t else ()) + tuple(sizes[c] for c in t if c != ".")
            for name, t in terms.items()
        }
    if op.kind == "window":
        covering = op.mapping_field("window")["over"] == "covering"
        operand_shape = (2, 12, 6) if op.operands[0].name == "columns" else (2, 3, *(_WINDOWS if covering else SHAPE))
        return {p.name: operand_shape for p in op.operands}
    scopes = {"column": shape[-1:], "row": shape[:-1]}
    return {p.name: scopes.get(p.scope, shape) for p in op.operands if p.is_tensor}


def arrays(op: Op, rng: np.random.Generator, shape: tuple[int, ...] = SHAPE) -> dict[str, Array]:
    """Return values for each tensor operand: float64, bool for masks, int64 for indices."""
    values: dict[str, Array] = {}
    for name, operand_shape in shapes(op, shape).items():
        kind = op.param(name).type
        if kind == "mask":
            values[name] = rng.random(operand_shape) > 0.5
        elif kind == "index":
            values[name] = rng.integers(0, shape[-1] if shape else 1, operand_shape)
        else:
            low, high = op.sample_range(name) or (-2.0, 2.0)
            values[name] = rng.uniform(low, high, operand_shape)
    return values


def numbers(op: Op) -> dict[str, object]:
    """Return a value for each scalar operand: its default, or the middle of its range."""
    values: dict[str, object] = {}
    for p in op.operands:
        if not p.is_tensor:
            low, high = op.sample_range(p.name) or (0.5, 1.0)
            is_integer = p.type == "index" or op.dtypes in ("integer", "integral")
            middle = 7 if is_integer else (low + high) / 2
            values[p.name] = middle if p.default is MISSING else p.default
    return values


def statics(op: Op, shape: tuple[int, ...] = SHAPE) -> dict[str, object]:
    """Return a value for each static argument: its default, or one that is valid for `shape`."""
    if op.kind == "window":
        size = SHAPE if op.mapping_field("window")["over"] == "covering" else _WINDOWS
        return {p.name: {"size": size, **_GEOMETRY}[p.name] for p in op.statics}
    return {p.name: _static(p, shape) if p.default is MISSING else p.default for p in op.statics}


def _static(p: Param, shape: tuple[int, ...]) -> object:
    if "Sequence[int]" in p.annotation:
        return {"normalized_shape": tuple(shape[-1:]), "dim": (0,)}.get(p.name, tuple(shape))
    by_annotation: dict[str, object] = {"int": -1 if p.name.startswith("dim") else 1, "bool": False, "str": ""}
    return by_annotation.get(p.annotation)


def arguments(
    op: Op,
    device: Device,
    dtype: DType,
    rng: np.random.Generator,
    *,
    grad: bool = False,
    shape: tuple[int, ...] = SHAPE,
) -> dict[str, object]:
    """Return an argument for every parameter, by name. With `grad`, value tensors require grad."""
    tensors: dict[str, object] = {}
    values = arrays(op, rng, shape)
    for p in op.params:
        if p.name in values:
            operand_dtype = dtype if p.type == "value" else None
            operand = tensor(
                values[p.name], dtype=operand_dtype, device=device, requires_grad=grad and p.type == "value"
            )
            tensors[p.name] = [operand, operand.detach()] if p.role == "list" else operand
    named = {**tensors, **numbers(op), **statics(op, shape)}
    return {p.name: named[p.name] for p in op.params}


def operand_list(op: Op, named_arguments: Mapping[str, object]) -> list[object]:
    """Return the operands of a call in order, from the arguments by name. Lists of tensors are several operands."""
    operands: list[object] = []
    for p in op.operands:
        argument = named_arguments[p.name]
        operands += argument if isinstance(argument, list) else [argument]
    return operands


@contextlib.contextmanager
def capture_steps(device: Device) -> Iterator[list[Step]]:
    """Inside, collect the steps that calls on `device` would launch, instead of launching them."""
    device.driver.capabilities  # noqa: B018  (opens the device)
    driver_attributes = vars(device.driver)
    steps: list[Step] = []
    thread_state = state()
    plans, thread_state.plans = thread_state.plans, {}

    def launcher(plan_steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        steps.extend(plan_steps)
        return lambda tensors, numbers, stream: None

    driver_attributes["launcher"] = launcher  # hides the method
    try:
        with unchecked(device):
            yield steps
    finally:
        del driver_attributes["launcher"]
        thread_state.plans = plans
        engine.forget_ones()  # the ones that backward caches were never filled either
