"""Expected values of an op: from the reference function that its spec names, else from its own formula in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from ..codegen.expr import Expr, emit_numpy
from ..codegen.kinds.contraction import epilogue, factors
from ..codegen.kinds.pointwise import expressions
from ..codegen.kinds.reduction_spec import Reduction, parse_reduction
from ..codegen.kinds.rowwise_spec import results
from ..codegen.kinds.scan import parse_scan
from ..codegen.model import Op
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError
from ..testing import resolve_reference, special_functions

__all__ = ["expected", "formula_values", "has_formula", "reference_values"]

_State: TypeAlias = dict[str, Array]
_KINDS_WITH_FORMULA = ("pointwise", "rowwise", "reduction", "scan", "contraction")


def expected(op: Op, inputs: Mapping[str, object]) -> tuple[str, list[Array] | None]:
    """Compute the expected results of an op.

    Args:
        op: The op.
        inputs: Its arguments by name: arrays and numbers.

    Returns:
        The source of the results (`reference` or `formula`), and the results. They are None if the op has neither.
    """
    if op.reference:
        return "reference", reference_values(op, inputs)
    try:
        values = formula_values(op, inputs)
    except ImportError:
        return "needs scipy", None
    return ("–" if values is None else "formula"), values


def reference_values(op: Op, inputs: Mapping[str, object]) -> list[Array]:
    """Compute the expected results of an op by the function that its spec names in `reference`, in float64.

    Args:
        op: An op with a reference.
        inputs: Its arguments by name: arrays and numbers.

    Raises:
        ArgumentError: The function does not take these arguments.
    """
    reference = op.reference or ""
    function = resolve_reference(reference)
    operands = [_double(inputs[p.name]) for p in op.operands if inputs[p.name] is not None]
    options: dict[str, object] = {}
    for name, numpy_name in (("dim", "axis"), ("keepdim", "keepdims")):
        if name in inputs and not (name == "keepdim" and not inputs[name]):
            options[numpy_name] = inputs[name]
    try:
        with np.errstate(all="ignore"):
            if reference.startswith("math."):
                function = np.vectorize(function, otypes=[np.float64])
            result = function(*operands, **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the reference {reference} does not take these arguments: {error}") from None
    return [np.asarray(part) for part in result] if isinstance(result, tuple) else [np.asarray(result)]


def has_formula(op: Op) -> bool:
    """Return True if `formula_values` can evaluate the op's kind."""
    return op.kind in _KINDS_WITH_FORMULA


def formula_values(op: Op, inputs: Mapping[str, object]) -> list[Array] | None:
    """Evaluate an op's own formula with NumPy in float64; None for kinds without a formula of their elements.

    This is no independent reference: it finds wrong kernels, not a wrong formula.

    Args:
        op: The op.
        inputs: Its arguments by name: arrays and numbers.

    Raises:
        ImportError: The formula has a special function, and SciPy is not installed.
    """
    with np.errstate(all="ignore"):
        return _formula(op, inputs)


def _double(value: object) -> object:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def _array(values: Mapping[str, object], name: str) -> Array:
    return np.asarray(values[name])


def _formula(op: Op, inputs: Mapping[str, object]) -> list[Array] | None:
    values = {k: _double(v) for k, v in inputs.items()}
    if op.kind == "pointwise":
        return list(evaluate(expressions(op), values).values())
    if op.kind == "rowwise":
        return _rowwise(op, values)
    if op.kind == "reduction":
        return _reduction(op, values)
    if op.kind == "scan":
        return _scan(op, values)
    if op.kind == "contraction":
        product = np.einsum(next(iter(op.outputs.values())), *(_array(values, p.name) for p in factors(op)))
        epilogue_expr = epilogue(op)
        return [
            product if epilogue_expr is None else evaluate({"out": epilogue_expr}, {**values, "acc": product})["out"]
        ]
    return None


def evaluate(outputs: Mapping[str, Expr], values: Mapping[str, object]) -> dict[str, Array]:
    """Evaluate expressions of the spec language with NumPy. values: by name, an array or number for each operand."""
    block = emit_numpy(outputs, names={name: f"v_{name}" for name in values})
    text = "\n".join([*block.statements, *(f"r_{k} = {v}" for k, v in block.values.items())])
    namespace: dict[str, object] = {"np": np, "__builtins__": {}, **{f"v_{k}": v for k, v in values.items()}}
    if "sp." in text:
        namespace["sp"] = special_functions()
    # safe: the text is printed from parsed expressions, which have only known names, numbers and functions
    exec(text, namespace)
    return {k: np.asarray(namespace[f"r_{k}"]) for k in outputs}


def _rowwise(op: Op, values: Mapping[str, object]) -> list[Array]:
    """Evaluate the formula with the elements of a row along the last axis."""
    first = next(_array(values, p.name) for p in op.operands if p.is_tensor and p.scope == "full")
    row_shape = values.get("normalized_shape")
    axes = tuple(range(-len(row_shape), 0)) if isinstance(row_shape, tuple) else (_axis(values, -1),)
    columns = {p.name for p in op.operands if p.scope == "column"}
    row_values = {p.name for p in op.operands if p.scope == "row"}
    changed = dict(values)
    for p in op.operands:
        if p.is_tensor and values[p.name] is not None:
            array = _array(values, p.name)
            is_full = p.name not in columns | row_values
            changed[p.name] = array[..., None] if p.name in row_values else _rows_last(array, axes if is_full else None)
    rows = _rows_last(first, axes)
    length = rows.shape[-1]
    outputs = results(op)
    computed = evaluate({k: r.expr for k, r in outputs.items()}, {**changed, "n": length, "index": np.arange(length)})
    arrays = []
    for name, result in outputs.items():
        array = np.broadcast_to(computed[name], (*rows.shape[:-1], 1 if result.scope == "row" else length))
        if result.scope == "row":
            array = array[..., 0]
            arrays.append(np.expand_dims(array, axes) if values.get("keepdim") else array)
        elif result.scope == "column":
            arrays.append(array.reshape(-1, length).sum(0))
        else:
            arrays.append(_rows_back(array, first.shape, axes))
    return arrays


def _axis(values: Mapping[str, object], default: int) -> int:
    dim = values.get("dim", default)
    return dim if isinstance(dim, int) else default


def _rows_last(array: Array, axes: tuple[int, ...] | None) -> Array:
    """Return an array with `axes` (None: all) moved to the end and merged."""
    axes = tuple(range(array.ndim)) if axes is None else tuple(axis % max(array.ndim, 1) for axis in axes)
    if not array.ndim:
        return array.reshape(1)
    others = [axis for axis in range(array.ndim) if axis not in axes]
    return array.transpose(*others, *axes).reshape(*(array.shape[axis] for axis in others), -1)


def _rows_back(array: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Return rows to where `_rows_last` has moved them from."""
    if not shape:
        return array.reshape(())
    axes = tuple(axis % len(shape) for axis in axes)
    order = [axis for axis in range(len(shape)) if axis not in axes] + list(axes)
    return array.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def _states(reduction: Reduction, op: Op, values: Mapping[str, object], axes: tuple[int, ...]) -> Iterator[_State]:
    """Yield the state after each element along `axes`, from the first one on."""
    names = [p.name for p in op.operands if p.is_tensor]
    operands = np.broadcast_arrays(*(_array(values, name) for name in names))
    lines = {name: _rows_last(operand, axes) for name, operand in zip(names, operands, strict=True)}
    shape = lines[names[0]].shape
    index = np.arange(shape[-1])
    mapped = evaluate(reduction.map, {**values, **lines, "index": index[::-1] if values.get("reverse") else index})
    mapped = {field: np.broadcast_to(array, shape) for field, array in mapped.items()}
    state: _State = {}
    for i in range(shape[-1]):
        element = {field: array[..., i] for field, array in mapped.items()}
        pairs = {}
        for field, value in state.items():
            first, second = reduction.operands(field)
            pairs[first], pairs[second] = value, element[field]
        state = evaluate(reduction.combine, pairs) if state else element
        yield state


def _reduction(op: Op, values: Mapping[str, object]) -> list[Array]:
    """Combine the elements one after the other along `dim`; without it, all elements."""
    reduction = parse_reduction(op)
    ndim = max(_array(values, p.name).ndim for p in op.operands if p.is_tensor)
    dim = values.get("dim")
    axes = (dim,) if isinstance(dim, int) else dim if isinstance(dim, tuple) and dim else tuple(range(ndim))
    states = list(_states(reduction, op, values, axes))
    visible = {k: e for k, e in reduction.finish.items() if k not in reduction.saved}
    arrays = list(evaluate(visible, {**values, **states[-1], "n": len(states)}).values())
    return [np.expand_dims(array, axes) for array in arrays] if values.get("keepdim") else arrays


def _scan(op: Op, values: Mapping[str, object]) -> list[Array]:
    """Combine the elements one after the other along `dim`, from the other end if `reverse` is true."""
    reduction = parse_scan(op)
    axis, is_reversed = _axis(values, -1), bool(values.get("reverse"))
    names = [p.name for p in op.operands if p.is_tensor and is_reversed]
    values = {**values, **{name: np.flip(_array(values, name), axis) for name in names}}
    finished = [evaluate(reduction.finish, {**values, **state}) for state in _states(reduction, op, values, (axis,))]
    arrays = [np.stack([result[name] for result in finished], axis) for name in reduction.finish]
    return [np.flip(array, axis) for array in arrays] if is_reversed else arrays
