"""Expected values of an op: from the independent function its spec names, or else from its own formula in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.errors import ArgumentError

__all__ = ["expected"]


def expected(op: Any, given: Mapping[str, Any]) -> tuple[str, list[Any] | None]:
    """(`reference` or `formula`, the results) for arrays and numbers by name; None where there is neither."""
    if op.reference:
        return "reference", _reference(op, given)
    try:
        with np.errstate(all="ignore"):
            found = _formula(op, given)
    except ImportError:
        return "needs scipy", None
    return ("–" if found is None else "formula"), found


def _reference(op: Any, given: Mapping[str, Any]) -> list[Any]:
    from ..testing import resolve_reference

    function = resolve_reference(op.reference)
    values = [_double(given[p.name]) for p in op.operands if given[p.name] is not None]
    options: dict[str, Any] = {}
    for name, own in (("dim", "axis"), ("keepdim", "keepdims")):
        if name in given and not (name == "keepdim" and not given[name]):
            options[own] = given[name]
    try:
        with np.errstate(all="ignore"):
            if op.reference.startswith("math."):
                function = np.vectorize(function, otypes=[np.float64])
            result = function(*values, **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"the reference {op.reference} does not take these arguments: {error}") from None
    return list(result) if isinstance(result, tuple) else [result]


def _double(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def _formula(op: Any, given: Mapping[str, Any]) -> list[Any] | None:
    values = {k: _double(v) for k, v in given.items()}
    if op.kind == "pointwise":
        from ..codegen.kinds.pointwise import expressions

        return list(evaluate(expressions(op), values).values())
    if op.kind == "rowwise" and values.get("dim", -1) in (-1, 1):
        return _rowwise(op, values)
    if op.kind == "reduction":
        return _reduction(op, values)
    if op.kind == "contraction":
        from ..codegen.kinds.contraction import epilogue, factors

        product = np.einsum(next(iter(op.outputs.values())), *(values[p.name] for p in factors(op)))
        stored = epilogue(op)
        return [product if stored is None else evaluate({"out": stored}, {**values, "acc": product})["out"]]
    return None


def evaluate(outputs: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Expressions of the spec language, computed by NumPy."""
    from ..codegen.expr import emit_numpy
    from ..testing import special_functions

    block = emit_numpy(outputs, names={name: f"v_{name}" for name in values})
    text = "\n".join([*block.statements, *(f"r_{k} = {v}" for k, v in block.values.items())])
    space: dict[str, Any] = {"np": np, "__builtins__": {}, **{f"v_{k}": v for k, v in values.items()}}
    if "sp." in text:
        space["sp"] = special_functions()
    exec(text, space)  # printed from parsed expressions: names, numbers and functions of the vocabulary
    return {k: space[f"r_{k}"] for k in outputs}


def _rowwise(op: Any, values: dict[str, Any]) -> list[Any]:
    from ..codegen.kinds.rowwise import results

    spread = dict(values)
    rows = next(values[p.name] for p in op.operands if p.is_tensor and p.scope == "full")
    for p in op.operands:
        if p.is_tensor and p.scope == "row":
            spread[p.name] = values[p.name][..., None]
    spread["n"], spread["index"] = rows.shape[-1], np.arange(rows.shape[-1])
    found = results(op)
    computed = evaluate({k: r.expr for k, r in found.items()}, spread)
    every = []
    for name, result in found.items():
        full = np.broadcast_to(computed[name], (*rows.shape[:-1], 1 if result.scope == "row" else rows.shape[-1]))
        if result.scope == "row":
            every.append(full if values.get("keepdim") else full[..., 0])
        else:
            every.append(full.sum(0) if result.scope == "column" else full)
    return every


def _reduction(op: Any, values: dict[str, Any]) -> list[Any]:
    """All elements, one after the other: defaults reduce every dimension."""
    from ..codegen.kinds.reduction import reduction_of

    found = reduction_of(op)
    tensors = [p.name for p in op.operands if p.is_tensor]
    flat = {n: np.broadcast_arrays(*(values[t] for t in tensors))[i].reshape(-1) for i, n in enumerate(tensors)}
    count = len(next(iter(flat.values())))
    mapped = evaluate(found.map, {**values, **flat, "index": np.arange(count)})
    mapped = {k: np.broadcast_to(v, (count,)) for k, v in mapped.items()}
    state = {k: v[0] for k, v in mapped.items()}
    for i in range(1, count):
        pairs = {}
        for field in state:
            first, second = found.operands(field)
            pairs[first], pairs[second] = state[field], mapped[field][i]
        state = evaluate(found.combine, pairs)
    seen = {k: e for k, e in found.finish.items() if k not in found.saved}
    return list(evaluate(seen, {**values, **state, "n": count}).values())
