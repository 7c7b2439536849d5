"""Expected values of an op: from the reference function that its spec names, else from its own formula in NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..codegen.expr import Expr, emit_numpy
from ..codegen.kinds.contraction import epilogue, factors
from ..codegen.kinds.pointwise import expressions
from ..codegen.kinds.reduction_spec import parse_reduction
from ..codegen.kinds.rowwise_spec import results
from ..codegen.model import Op
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError
from ..testing import resolve_reference, special_functions

__all__ = ["expected"]


def expected(op: Op, inputs: Mapping[str, object]) -> tuple[str, list[Array] | None]:
    """Compute the expected results of an op.

    Args:
        op: The op.
        inputs: Its arguments by name: arrays and numbers.

    Returns:
        The source of the results (`reference` or `formula`), and the results. They are None if the op has neither.
    """
    if op.reference:
        return "reference", _reference(op, op.reference, inputs)
    try:
        with np.errstate(all="ignore"):
            results = _formula(op, inputs)
    except ImportError:
        return "needs scipy", None
    return ("–" if results is None else "formula"), results


def _reference(op: Op, reference: str, inputs: Mapping[str, object]) -> list[Array]:
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


def _double(value: object) -> object:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def _array(values: Mapping[str, object], name: str) -> Array:
    return np.asarray(values[name])


def _formula(op: Op, inputs: Mapping[str, object]) -> list[Array] | None:
    values = {k: _double(v) for k, v in inputs.items()}
    if op.kind == "pointwise":
        return list(evaluate(expressions(op), values).values())
    if op.kind == "rowwise" and values.get("dim", -1) in (-1, 1):
        return _rowwise(op, values)
    if op.kind == "reduction":
        return _reduction(op, values)
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
    broadcast_values = dict(values)
    rows = next(_array(values, p.name) for p in op.operands if p.is_tensor and p.scope == "full")
    for p in op.operands:
        if p.is_tensor and p.scope == "row":
            broadcast_values[p.name] = _array(values, p.name)[..., None]
    broadcast_values["n"], broadcast_values["index"] = rows.shape[-1], np.arange(rows.shape[-1])
    outputs = results(op)
    computed = evaluate({k: r.expr for k, r in outputs.items()}, broadcast_values)
    arrays = []
    for name, result in outputs.items():
        array = np.broadcast_to(computed[name], (*rows.shape[:-1], 1 if result.scope == "row" else rows.shape[-1]))
        if result.scope == "row":
            arrays.append(array if values.get("keepdim") else array[..., 0])
        else:
            arrays.append(array.sum(0) if result.scope == "column" else array)
    return arrays


def _reduction(op: Op, values: Mapping[str, object]) -> list[Array]:
    """Combine all elements one after the other. The default arguments reduce every dimension."""
    reduction = parse_reduction(op)
    tensors = [p.name for p in op.operands if p.is_tensor]
    flat = {n: np.broadcast_arrays(*(_array(values, t) for t in tensors))[i].reshape(-1) for i, n in enumerate(tensors)}
    count = len(next(iter(flat.values())))
    mapped = evaluate(reduction.map, {**values, **flat, "index": np.arange(count)})
    mapped = {k: np.broadcast_to(v, (count,)) for k, v in mapped.items()}
    state = {k: v[0] for k, v in mapped.items()}
    for i in range(1, count):
        pairs = {}
        for field in state:
            first, second = reduction.operands(field)
            pairs[first], pairs[second] = state[field], mapped[field][i]
        state = evaluate(reduction.combine, pairs)
    visible = {k: e for k, e in reduction.finish.items() if k not in reduction.saved}
    return list(evaluate(visible, {**values, **state, "n": count}).values())
