"""From a node and the gradients of its results to the gradients of its operands.

Most rules name another op, called with the incoming gradient and what was saved. What the kinds need around that
call (a reduced dimension put back, a sum over broadcast ones) is in one function a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..context import State
from ..device import Meta
from ..dispatch import call
from ..errors import AnomalyError, GradientError
from ..layout import normalize_dims
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .node import Node

__all__ = ["cast_to", "expand_to", "gradients_of", "sum_to"]


def gradients_of(node: Node, grads: Sequence[Tensor | None], state: State) -> Sequence[Tensor | None]:
    """One gradient for each of the node's edges, in the operand's shape and dtype."""
    if node.function is not None:
        found = node.function(node, grads)
    else:
        found = _by_rules(node, grads)
    if state.anomaly:
        _check_finite(node, found)
    return found


def _by_rules(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    recipe = node.recipe
    record = recipe.record
    values = dict(node.values())
    outputs = record.outputs
    for i, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if grad is None and any(_seed_of(record, i) in rule.operands for _, rule in recipe.rules):
            grad = _missing(recipe.out_metas[i], record)
        values[_seed_of(record, i)] = grad
        del output
    apply = _BY_KIND.get(record.kind, _plain)
    found: list[Tensor | None] = []
    for position, rule in recipe.rules:
        layout = recipe.metas[position]
        assert isinstance(layout, Meta)
        gradient = rule.function(node, values, position) if rule.function else apply(node, values, rule, layout)
        found.append(None if gradient is None else cast_to(sum_to(gradient, layout.shape), layout))
    return found


def _seed_of(record: OpRecord, index: int) -> str:
    """The name under which rules of `record` speak of the gradient of its result number `index`."""
    names = record.detail.get("seeds")
    if names is not None:
        return str(names[index])
    return _seed_name(record, index)


def _seed_name(record: OpRecord, index: int) -> str:
    taken = {o.name for o in record.operands} | set(record.statics) | {o.name for o in record.outputs}
    base = "grad" if len(record.outputs) < 2 else f"grad_{record.outputs[index].name}"
    name, order = base, 1
    while name in taken:
        order += 1
        name = f"{base}{order}"
    return name


def _missing(layout: Meta, record: OpRecord) -> Any:
    """A gradient that never came: a zero that takes no memory where the kernel takes numbers."""
    if record.kind == "pointwise":
        return 0.0
    from ..device import meta
    from ..dispatch import empty

    like = empty(meta(layout.dtype, layout.shape, None, layout.device))
    return call(registry["full_like_as"], (like, 0.0), (None,))


def _statics(record: OpRecord, node: Node) -> tuple[Any, ...]:
    """The static arguments of a derived op: those of the op it belongs to, by name."""
    own = dict(zip(node.recipe.record.statics, node.statics, strict=False))
    return tuple(own.get(name) for name in record.statics)


def _plain(node: Node, values: Mapping[str, Any], rule: Rule, layout: Meta) -> Tensor | None:
    if rule.op is None:
        return values[rule.operands[0]] if rule.operands else None
    if rule.op == "!":
        raise GradientError(
            f"{node.name}: no gradient is known with respect to an operand of shape {list(layout.shape)} "
            f"and dtype {layout.dtype.name}; detach() it if none is wanted"
        )
    record = registry[rule.op]
    operands = [values[name] for name in rule.operands]
    if not any(isinstance(o, Tensor) for o in operands):  # only numbers are left of it: a constant
        operands[0] = call(registry["full_like_as"], (_any_tensor(values), operands[0]), (None,))
    return call(record, operands, _statics(record, node))  # type: ignore[no-any-return]


def _any_tensor(values: Mapping[str, Any]) -> Tensor:
    return next(v for v in values.values() if isinstance(v, Tensor))


def _reduction(node: Node, values: Mapping[str, Any], rule: Rule, layout: Meta) -> Tensor | None:
    """Results and their gradients get the reduced dimensions back, with size 1, and broadcast against the input."""
    record = node.recipe.record
    own = dict(zip(record.statics, node.statics, strict=False))
    dims = normalize_dims(own.get("dim"), layout.ndim, record.name)
    kept = tuple(1 if d in dims else size for d, size in enumerate(layout.shape))
    count = 1
    for d in dims:
        count *= layout.shape[d]
    results = {o.name for o in record.outputs} | {_seed_of(record, i) for i in range(len(record.outputs))}
    widened = dict(values)
    widened["n_reduced"] = float(count)
    for name in results & set(rule.operands):
        if isinstance(widened.get(name), Tensor):
            widened[name] = view_as(widened[name], kept)
    gradient = _plain(node, widened, rule, layout)
    return None if gradient is None else expand_to(gradient, layout.shape)


_BY_KIND: dict[str, Callable[[Node, Mapping[str, Any], Rule, Meta], Tensor | None]] = {"reduction": _reduction}


def view_as(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` in another shape of as many elements."""
    if tensor.meta.shape == shape:
        return tensor
    from ..views import reshape

    return reshape(tensor, shape)


def expand_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` broadcast to `shape` without copying."""
    if tensor.meta.shape == shape:
        return tensor
    return call(registry["expand"], (tensor,), (shape,))  # type: ignore[no-any-return]


def sum_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` summed over the dimensions along which `shape` was broadcast to it."""
    own = tensor.meta.shape
    if own == shape:
        return tensor
    lead = len(own) - len(shape)
    if lead < 0:
        return expand_to(tensor, shape)
    dims = [*range(lead), *(lead + d for d, n in enumerate(shape) if n == 1 and own[lead + d] != 1)]
    if dims:
        tensor = call(registry["sum"], (tensor,), (tuple(dims), True, None))
    tensor = view_as(tensor, tensor.meta.shape[lead:]) if lead else tensor
    return expand_to(tensor, shape)


def cast_to(tensor: Tensor, layout: Meta) -> Tensor:
    """`tensor` in the dtype of `layout`."""
    if tensor.meta.dtype is layout.dtype:
        return tensor
    return call(registry["copy"], (tensor,), (layout.dtype,))  # type: ignore[no-any-return]


def _check_finite(node: Node, grads: Sequence[Tensor | None]) -> None:
    for position, grad in zip(node.recipe.edges, grads, strict=False):
        if grad is not None and grad.meta.dtype.kind == "f" and grad.meta.numel:
            total = call(registry["sum"], (call(registry["isnan"], (grad,)),), (None, False, None))
            if total.item():  # type: ignore[attr-defined]
                where = f"\nThe forward call was made here:\n{node.trace}" if node.trace else ""
                raise AnomalyError(f"backward of {node.name}: the gradient of operand {position} has NaN{where}")
