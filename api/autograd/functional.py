"""Derivatives of functions of tensors: products with vectors, Jacobians and Hessians, of any order.

The names are PyTorch's (`torch.autograd.functional`). A Jacobian is made row by row, by one backward each; products
J v come from two (of w -> J^T w, which is linear, so that its derivative is J).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..factories import ones_like, zeros_like
from ..joining import stack
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from . import enable_grad, grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]


def _tuple(values: Any, what: str) -> tuple[Tensor, ...]:
    found = (values,) if isinstance(values, Tensor) else tuple(values)
    for value in found:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{what} must be a tensor or a tuple of tensors, not {type(value).__name__}")
    return found


def _inputs(inputs: Any, create_graph: bool) -> tuple[Any, ...]:
    """Leaves (or, if what comes out is differentiated further, views of what was given) to differentiate by."""
    given: tuple[Any, ...] = _tuple(inputs, "inputs")
    if create_graph:
        return tuple(t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in given)
    return tuple(t.detach().requires_grad_() for t in given)


def _vectors(v: Any, like: Sequence[Any], what: str) -> tuple[Any, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradientError(f"{what}: v may be left out only where there is one tensor of one element")
        return (ones_like(like[0]),)
    found: tuple[Any, ...] = _tuple(v, "v")
    if [t.shape for t in found] != [t.shape for t in like]:
        shapes = [list(t.shape) for t in found], [list(t.shape) for t in like]
        raise GradientError(f"{what}: v has the shapes {shapes[0]}, and needs {shapes[1]}")
    return found


def _derivatives(outputs: Any, inputs: Any, seeds: Any, create_graph: bool, strict: bool) -> tuple[Any, ...]:
    """As `grad`, zeros where there is no dependence (an error if strict)."""
    able = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    found: Any = [None] * len(inputs)
    if able:
        found = grad(
            [o for o, _ in able], inputs, [s for _, s in able], retain_graph=True, create_graph=create_graph,
            allow_unused=True,
        )  # fmt: skip
    if strict and (len(able) < len(outputs) or any(g is None for g in found)):
        raise GradientError("an output does not depend on an input, so that its derivative is zero; see strict")
    return tuple(zeros_like(i) if g is None else g for g, i in zip(found, inputs, strict=True))


def _out(found: Sequence[Any], single: bool, create_graph: bool) -> Any:
    made = tuple(found) if create_graph else tuple(t.detach() for t in found)
    return made[0] if single else made


@enable_grad()
def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T J): `v` has the shapes of the outputs. Raises `GradientError` where it has not."""
    leaves = _inputs(inputs, create_graph)
    result = func(*leaves)
    outputs = _tuple(result, "outputs")
    found = _derivatives(outputs, leaves, _vectors(v, outputs, "vjp"), create_graph, strict)
    return (
        _out(outputs, isinstance(result, Tensor), create_graph),
        _out(found, isinstance(inputs, Tensor), create_graph),
    )


@enable_grad()
def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), J v): `v` has the shapes of the inputs. Raises `GradientError` where it has not."""
    leaves = _inputs(inputs, create_graph)
    direction = _vectors(v, leaves, "jvp")
    result = func(*leaves)
    outputs = _tuple(result, "outputs")
    weights = tuple(zeros_like(o).requires_grad_() for o in outputs)  # type: ignore[attr-defined]
    back = _derivatives(outputs, leaves, weights, True, strict)
    found = _derivatives(back, weights, direction, create_graph, False)
    single = isinstance(result, Tensor)
    return _out(outputs, single, create_graph), _out(found, single, create_graph)


@enable_grad()
def jacobian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """d outputs / d inputs, of shape outputs + inputs; tuples (of tuples) where there are several.

    vectorize and strategy change nothing here: rows are made one by one, backwards.
    """
    leaves = _inputs(inputs, create_graph)
    result = func(*leaves)
    blocks = []
    for output in _tuple(result, "outputs"):
        rows = []
        flat: Any = output.reshape(-1)
        for i in range(flat.numel()):
            rows.append(_derivatives((flat[i],), leaves, (ones_like(flat[i]),), create_graph, strict))
        made = []
        for j, leaf in enumerate(leaves):
            shape = (*output.shape, *leaf.shape)
            whole: Any = stack([row[j] for row in rows]) if rows else leaf.new_zeros(shape)
            made.append(whole.reshape(shape))
        blocks.append(_out(made, isinstance(inputs, Tensor), create_graph))
    return blocks[0] if isinstance(result, Tensor) else tuple(blocks)


def _slope(func: Function, strict: bool) -> Function:
    """The gradient of a function whose result has one element, as a function."""

    def slope(*inputs: Any) -> tuple[Any, ...]:
        output = func(*inputs)
        if not isinstance(output, Tensor) or output.meta.numel != 1:
            raise GradientError("the function must return one tensor of one element")
        return _derivatives((output,), inputs, (ones_like(output),), True, strict)

    return slope


def hessian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function of one element, of shape inputs + inputs; tuples of tuples if several."""
    found = jacobian(_slope(func, strict), _tuple(inputs, "inputs"), create_graph, strict)
    return found[0][0] if isinstance(inputs, Tensor) else found


@enable_grad()
def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), v^T H) of a function of one element. `v` has the shapes of the inputs."""
    leaves = _inputs(inputs, create_graph)
    seeds = _vectors(v, leaves, "vhp")
    found = _derivatives(_slope(func, strict)(*leaves), leaves, seeds, create_graph, strict)
    value = func(*leaves)
    return _out((value,), True, create_graph), _out(found, isinstance(inputs, Tensor), create_graph)


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func(*inputs), H v) of a function of one element: `vhp`, since a Hessian is symmetric."""
    return vhp(func, inputs, v, create_graph, strict)
