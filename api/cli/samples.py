"""Sample arguments of an op, for the commands that call ops. The spec says which roles, shapes and ranges are valid."""

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
from ..testing.op_examples import example_shapes

__all__ = ["SHAPE", "capture_steps", "numbers", "operand_list", "sample_arguments", "shapes", "statics"]

SHAPE = (5, 7)  # of an operand of scope `full`
_BATCH_SHAPE = (2,)  # what `...` stands for in the equation of a contraction

_IMAGES_SHAPE = (2, 3, *SHAPE)  # (N, C, H, W)
_WINDOW_COUNTS = (2, 3)  # 2x2 windows side by side in an image of SHAPE
_COLUMNS_SHAPE = (2, 12, 6)  # (N, C * elements of a window, windows)
_WINDOW_STATICS: dict[str, object] = {
    "kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "counted": True, "divisor": 0
}  # fmt: skip


def shapes(op: Op, shape: tuple[int, ...] = SHAPE, dim: int = -1) -> dict[str, tuple[int, ...]]:
    """Return a shape for each tensor operand, by name.

    Args:
        op: The op. Operands of a composite have the shapes that its example has, which fit each other.
        shape: The shape of an operand of scope `full`. Window ops ignore it.
        dim: The dimension along which the rows of a rowwise op lie.
    """
    if op.kind == "contraction":
        return _contraction_shapes(op, shape)
    if op.kind == "composite" and (known_shapes := example_shapes(op)):
        return {p.name: known_shapes.get(p.name, shape) for p in op.operands if p.is_tensor}
    if op.kind == "window":
        if op.operands[0].name == "columns":
            operand_shape: tuple[int, ...] = _COLUMNS_SHAPE
        else:
            operand_shape = (2, 3, *_WINDOW_COUNTS) if _has_window_operand(op) else _IMAGES_SHAPE
        return {p.name: operand_shape for p in op.operands}
    axis = dim % len(shape) if shape else 0
    shape_by_scope = {"column": shape[axis : axis + 1], "row": shape[:axis] + shape[axis + 1 :]}
    return {p.name: shape_by_scope.get(p.scope, shape) for p in op.operands if p.is_tensor}


def _contraction_shapes(op: Op, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return shapes for the operands of a contraction: every letter of its equation has one size."""
    operand_letters = letters(op)
    distinct_letters = sorted({c for text in operand_letters.values() for c in text if c != "."})
    # A product of matrices has the letters m, n and k. Others have different sizes, so that no mix-up goes unnoticed.
    sizes = {c: 3 + i for i, c in enumerate(distinct_letters)} | {"m": shape[0], "n": shape[-1], "k": sum(shape)}
    return {
        name: (_BATCH_SHAPE if "..." in text else ()) + tuple(sizes[c] for c in text if c != ".")
        for name, text in operand_letters.items()
    }


def _has_window_operand(op: Op) -> bool:
    """Return True if the operands of a window op have one element per window, as the gradient of pooling has."""
    return op.mapping_field("window")["over"] == "covering"


def _tensor_values(op: Op, rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return values for each tensor operand, by name: float64, bool for masks, int64 for indices."""
    values: dict[str, Array] = {}
    for name, operand_shape in shapes(op, shape).items():
        operand_type = op.param(name).type
        if operand_type == "mask":
            values[name] = rng.random(operand_shape) > 0.5
        elif operand_type == "index":
            values[name] = rng.integers(0, shape[-1] if shape else 1, operand_shape)
        else:
            low, high = op.sample_range(name) or (-2.0, 2.0)
            values[name] = rng.uniform(low, high, operand_shape)
    return values


def numbers(op: Op) -> dict[str, object]:
    """Return a value for each scalar operand, by name: its default, 7 for an integer, or the middle of its range."""
    values: dict[str, object] = {}
    for p in op.operands:
        if not p.is_tensor:
            low, high = op.sample_range(p.name) or (0.5, 1.0)
            is_integer = p.type == "index" or op.dtypes in ("integer", "integral")
            value = 7 if is_integer else (low + high) / 2
            values[p.name] = value if p.default is MISSING else p.default
    return values


def statics(op: Op, shape: tuple[int, ...] = SHAPE) -> dict[str, object]:
    """Return a value for each static parameter, by name: its default, or one that is valid for `shape`."""
    if op.kind == "window":
        window_statics = {"size": SHAPE if _has_window_operand(op) else _WINDOW_COUNTS, **_WINDOW_STATICS}
        return {p.name: window_statics[p.name] for p in op.statics}
    return {p.name: _static_value(p, shape) if p.default is MISSING else p.default for p in op.statics}


def _static_value(p: Param, shape: tuple[int, ...]) -> object:
    """Return a value of the parameter's type; parameters that name dimensions or sizes get some of `shape`."""
    if "Sequence[int]" in p.annotation:
        return {"normalized_shape": tuple(shape[-1:]), "dim": (0,)}.get(p.name, tuple(shape))
    value_by_annotation: dict[str, object] = {"int": -1 if p.name.startswith("dim") else 1, "bool": False, "str": ""}
    return value_by_annotation.get(p.annotation)


def sample_arguments(
    op: Op,
    device: Device,
    dtype: DType,
    rng: np.random.Generator,
    *,
    grad: bool = False,
    shape: tuple[int, ...] = SHAPE,
) -> dict[str, object]:
    """Return an argument for every parameter of an op, by name.

    Args:
        op: The op.
        device: Device of the tensors.
        dtype: Dtype of the value tensors. Masks are bool, indices int64.
        rng: Source of the tensors' elements.
        grad: Whether value tensors require grad.
        shape: Shape of the operands of scope `full`. Window ops ignore it.
    """
    tensors: dict[str, object] = {}
    values = _tensor_values(op, rng, shape)
    for p in op.params:
        if p.name in values:
            is_value = p.type == "value"
            operand = tensor(
                values[p.name], dtype=dtype if is_value else None, device=device, requires_grad=grad and is_value
            )
            # A parameter that takes a list of tensors gets two; only one of them is differentiated.
            tensors[p.name] = [operand, operand.detach()] if p.role == "list" else operand
    named_arguments = {**tensors, **numbers(op), **statics(op, shape)}
    return {p.name: named_arguments[p.name] for p in op.params}


def operand_list(op: Op, named_arguments: Mapping[str, object]) -> list[object]:
    """Return the operands of a call in order, from the arguments by name. Each tensor of a list is an operand."""
    operands: list[object] = []
    for p in op.operands:
        argument = named_arguments[p.name]
        operands += argument if isinstance(argument, list) else [argument]
    return operands


@contextlib.contextmanager
def capture_steps(device: Device) -> Iterator[list[Step]]:
    """Collect the steps that calls inside the context would launch on `device`, and launch nothing.

    Tensors stay uninitialized, so indices are not checked against their bounds.
    """
    device.driver.capabilities  # noqa: B018  (opens the device)
    driver_attributes = vars(device.driver)
    steps: list[Step] = []
    thread_state = state()
    plans, thread_state.plans = thread_state.plans, {}

    def launcher(plan_steps: Sequence[Step], scratch: Sequence[int]) -> Callable[..., None]:
        steps.extend(plan_steps)
        return lambda tensors, numbers, stream: None

    driver_attributes["launcher"] = launcher  # an attribute of the object, which hides the class's method
    try:
        with unchecked(device):
            yield steps
    finally:
        del driver_attributes["launcher"]
        thread_state.plans = plans
        engine.forget_ones()  # the engine caches tensors of ones as seeds, and those made here were never filled
