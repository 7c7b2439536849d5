"""Derivatives of functions: vector products, Jacobians and Hessians, under `torch.autograd.functional`'s names.

A Jacobian is computed row by row, with one backward pass per output element. J v takes two backward passes. The first
computes g(w) = J^T w, which is linear in w. The second computes the vector-Jacobian product of g with v: v^T J^T, or
J v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar, overload

from ..creation.factories import ones_like, zeros_like
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from .grad_mode import enable_grad
from .gradients import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors: TypeAlias = tuple[Tensor, ...]
_TensorOrTensors: TypeAlias = Tensor | _Tensors
_Inputs: TypeAlias = Tensor | Sequence[Tensor]
_Outputs = TypeVar("_Outputs", Tensor, _Tensors)
_Function: TypeAlias = Callable[..., _TensorOrTensors]


def _as_tensor_tuple(values: object, argument_name: str) -> _Tensors:
    """Return `values` as a tuple of tensors. Raise `ArgumentError` for other types."""
    candidates: Iterable[object] = (
        (values,) if isinstance(values, Tensor) or not isinstance(values, Iterable) else values
    )
    tensors = []
    for value in candidates:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{argument_name} must be a tensor or a tuple of tensors, not {type(value).__name__}")
        tensors.append(value)
    return tuple(tensors)


def _make_leaves(inputs: _Inputs, create_graph: bool) -> _Tensors:
    """Return detached copies of the inputs that require grad and share their memory.

    With `create_graph`, return views of those inputs that require grad, so that the results are differentiable with
    respect to the inputs.
    """
    tensors = _as_tensor_tuple(inputs, "inputs")
    if create_graph:
        return tuple(t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in tensors)
    return tuple(t.detach().requires_grad_() for t in tensors)


def _vectors(v: _Inputs | None, references: _Tensors, function_name: str) -> _Tensors:
    """Return `v` as a tuple of tensors. If `v` is None and `references` is one tensor of one element, return ones.

    Raises `GradientError` if the shapes of `v` are not those of `references`.
    """
    if v is None:
        if len(references) != 1 or references[0].numel() != 1:
            raise GradientError(f"{function_name}: v may be left out only where there is one tensor of one element")
        return (ones_like(references[0]),)
    vectors = _as_tensor_tuple(v, "v")
    if [t.shape for t in vectors] != [t.shape for t in references]:
        shapes = [list(t.shape) for t in vectors], [list(t.shape) for t in references]
        raise GradientError(f"{function_name}: v has the shapes {shapes[0]}, and needs {shapes[1]}")
    return vectors


def _derivatives(outputs: _Tensors, inputs: _Tensors, seeds: _Tensors, create_graph: bool, strict: bool) -> _Tensors:
    """Return `grad(outputs, inputs, seeds)`, with zeros for inputs that no output depends on.

    With `strict`, raise `GradientError` for such an input, and for an output that requires no grad.
    """
    differentiable = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    grads: Sequence[Tensor | None] = [None] * len(inputs)
    if differentiable:
        grads = grad(
            [o for o, _ in differentiable], inputs, [s for _, s in differentiable], retain_graph=True,
            create_graph=create_graph, allow_unused=True,
        )  # fmt: skip
    if strict and (len(differentiable) < len(outputs) or any(g is None for g in grads)):
        raise GradientError("an output does not depend on an input, so that its derivative is zero; see strict")
    return tuple(zeros_like(i) if g is None else g for g, i in zip(grads, inputs, strict=True))


def _format_output(tensors: Sequence[Tensor], is_single: bool, create_graph: bool) -> _TensorOrTensors:
    """Return the tensors, detached unless `create_graph`, as a tuple; if `is_single`, return the only tensor."""
    outputs = tuple(tensors) if create_graph else tuple(t.detach() for t in tensors)
    return outputs[0] if is_single else outputs


@overload
def vjp(
    func: Callable[..., _Outputs], inputs: Tensor, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[_Outputs, Tensor]: ...  # fmt: skip
@overload
def vjp(
    func: Callable[..., _Outputs], inputs: Sequence[Tensor], v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[_Outputs, _Tensors]: ...  # fmt: skip
@enable_grad()
def vjp(
    func: _Function, inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[_TensorOrTensors, _TensorOrTensors]:
    """Compute the vector-Jacobian product v^T J.

    Args:
        func: Function of tensors that returns a tensor or a tuple of tensors.
        inputs: One tensor or a tuple of tensors.
        v: Vector with the shapes of the outputs; may be None for a single output of one element.
        create_graph: Keep the results differentiable.
        strict: Raise an error if an output does not depend on an input.

    Returns:
        (func(*inputs), v^T J).

    Raises:
        GradientError: If `v` has other shapes than the outputs.

    Example:
        >>> wg.autograd.functional.vjp(lambda x: x * x, wg.tensor([1.0, 2.0]), wg.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    leaves = _make_leaves(inputs, create_graph)
    result = func(*leaves)
    outputs = _as_tensor_tuple(result, "outputs")
    product = _derivatives(outputs, leaves, _vectors(v, outputs, "vjp"), create_graph, strict)
    return (
        _format_output(outputs, isinstance(result, Tensor), create_graph),
        _format_output(product, isinstance(inputs, Tensor), create_graph),
    )


@overload
def jvp(
    func: Callable[..., Tensor], inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def jvp(
    func: Callable[..., _Tensors], inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[_Tensors, _Tensors]: ...  # fmt: skip
@enable_grad()
def jvp(
    func: _Function, inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False, strict: bool = False
) -> tuple[_TensorOrTensors, _TensorOrTensors]:
    """Compute the Jacobian-vector product J v.

    Args:
        func: Function of tensors that returns a tensor or a tuple of tensors.
        inputs: One tensor or a tuple of tensors.
        v: Vector with the shapes of the inputs; may be None for a single input of one element.
        create_graph: Keep the results differentiable.
        strict: Raise an error if an output does not depend on an input.

    Returns:
        (func(*inputs), J v).

    Raises:
        GradientError: If `v` has other shapes than the inputs.

    Example:
        >>> wg.autograd.functional.jvp(lambda x: x * x, wg.tensor([1.0, 2.0]), wg.tensor([1.0, 10.0]))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    leaves = _make_leaves(inputs, create_graph)
    direction = _vectors(v, leaves, "jvp")
    result = func(*leaves)
    outputs = _as_tensor_tuple(result, "outputs")
    weights = tuple(zeros_like(o).requires_grad_() for o in outputs)
    vjp_of_weights = _derivatives(outputs, leaves, weights, True, strict)
    product = _derivatives(vjp_of_weights, weights, direction, create_graph, False)
    is_single = isinstance(result, Tensor)
    return _format_output(outputs, is_single, create_graph), _format_output(product, is_single, create_graph)


@overload
def jacobian(
    func: Callable[..., Tensor], inputs: Tensor, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Tensor: ...  # fmt: skip
@overload
def jacobian(
    func: Callable[..., Tensor], inputs: Sequence[Tensor], create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> _Tensors: ...  # fmt: skip
@overload
def jacobian(
    func: Callable[..., _Tensors], inputs: Tensor, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> _Tensors: ...  # fmt: skip
@overload
def jacobian(
    func: Callable[..., _Tensors], inputs: Sequence[Tensor], create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> tuple[_Tensors, ...]: ...  # fmt: skip
@enable_grad()
def jacobian(
    func: _Function, inputs: _Inputs, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> _TensorOrTensors | tuple[_TensorOrTensors, ...]:  # fmt: skip
    """Compute the Jacobian of `func`.

    Args:
        func: Function of tensors that returns a tensor or a tuple of tensors.
        inputs: One tensor or a tuple of tensors.
        create_graph: Keep the result differentiable.
        strict: Raise an error if an output does not depend on an input.
        vectorize: Accepted for compatibility; rows are computed one by one.
        strategy: Accepted for compatibility; the mode is always reverse.

    Returns:
        For one output and one input, a tensor of shape `(*output.shape, *input.shape)`. If `func` returns a tuple, a
        tuple with an entry per output; if `inputs` is a tuple, each entry is a tuple with a tensor per input.

    Raises:
        GradientError: With `strict`, if an output does not depend on an input.

    Example:
        >>> wg.autograd.functional.jacobian(lambda x: x * x, wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    leaves = _make_leaves(inputs, create_graph)
    result = func(*leaves)
    blocks = []
    for output in _as_tensor_tuple(result, "outputs"):
        rows = []
        flat = output.reshape(-1)
        for i in range(flat.numel()):
            rows.append(_derivatives((flat[i],), leaves, (ones_like(flat[i]),), create_graph, strict))
        row_blocks = []
        for j, leaf in enumerate(leaves):
            shape = (*output.shape, *leaf.shape)
            stacked = stack([row[j] for row in rows]) if rows else leaf.new_zeros(shape)
            row_blocks.append(stacked.reshape(shape))
        blocks.append(_format_output(row_blocks, isinstance(inputs, Tensor), create_graph))
    return blocks[0] if isinstance(result, Tensor) else tuple(blocks)


def _value_and_gradient(func: _Function, inputs: _Tensors, strict: bool) -> tuple[Tensor, _Tensors]:
    """Return `func(*inputs)`, which must be one tensor of one element, and its gradient, which is differentiable."""
    output = func(*inputs)
    if not isinstance(output, Tensor) or output.meta.numel != 1:
        raise GradientError("the function must return one tensor of one element")
    return output, _derivatives((output,), inputs, (ones_like(output),), True, strict)


@overload
def hessian(
    func: Callable[..., Tensor], inputs: Tensor, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Tensor: ...  # fmt: skip
@overload
def hessian(
    func: Callable[..., Tensor], inputs: Sequence[Tensor], create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> tuple[_Tensors, ...]: ...  # fmt: skip
def hessian(
    func: Callable[..., Tensor], inputs: _Inputs, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Tensor | tuple[_Tensors, ...]:  # fmt: skip
    """Compute the Hessian of a function whose output has one element.

    Args:
        func: Function of tensors that returns a one-element tensor.
        inputs: One tensor or a tuple of tensors.
        create_graph: Keep the result differentiable.
        strict: Raise an error if an output does not depend on an input.
        vectorize: Accepted for compatibility.
        outer_jacobian_strategy: Accepted for compatibility.

    Returns:
        A tensor of shape `(*input.shape, *input.shape)`; a tuple of tuples if there are several inputs.

    Raises:
        GradientError: If `func` does not return one tensor of one element.

    Example:
        >>> wg.autograd.functional.hessian(lambda x: (x**3).sum(), wg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """

    def gradient(*leaves: Tensor) -> _Tensors:
        return _value_and_gradient(func, leaves, strict)[1]

    blocks = jacobian(gradient, _as_tensor_tuple(inputs, "inputs"), create_graph, strict)
    return blocks[0][0] if isinstance(inputs, Tensor) else blocks


@overload
def vhp(
    func: Callable[..., Tensor], inputs: Tensor, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def vhp(
    func: Callable[..., Tensor], inputs: Sequence[Tensor], v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, _Tensors]: ...  # fmt: skip
@enable_grad()
def vhp(
    func: Callable[..., Tensor], inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, _TensorOrTensors]:  # fmt: skip
    """Compute the vector-Hessian product v^T H of a function whose output has one element.

    Args:
        func: Function of tensors that returns a one-element tensor.
        inputs: One tensor or a tuple of tensors.
        v: Vector with the shapes of the inputs.
        create_graph: Keep the results differentiable.
        strict: Raise an error if an output does not depend on an input.

    Returns:
        (func(*inputs), v^T H).

    Example:
        >>> x = wg.tensor([1.0, 2.0])
        >>> wg.autograd.functional.vhp(lambda x: (x**3).sum(), x, wg.ones(2))
        (tensor(9.), tensor([ 6., 12.]))
    """
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


@overload
def hvp(
    func: Callable[..., Tensor], inputs: Tensor, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def hvp(
    func: Callable[..., Tensor], inputs: Sequence[Tensor], v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, _Tensors]: ...  # fmt: skip
@enable_grad()
def hvp(
    func: Callable[..., Tensor], inputs: _Inputs, v: _Inputs | None = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Tensor, _TensorOrTensors]:  # fmt: skip
    """Compute the Hessian-vector product H v. It equals `vhp`, because a Hessian is symmetric.

    Args:
        func: Function of tensors that returns a one-element tensor.
        inputs: One tensor or a tuple of tensors.
        v: Vector with the shapes of the inputs.
        create_graph: Keep the results differentiable.
        strict: Raise an error if an output does not depend on an input.

    Returns:
        (func(*inputs), H v).

    Example:
        >>> x = wg.tensor([1.0, 2.0])
        >>> wg.autograd.functional.hvp(lambda x: (x**3).sum(), x, wg.ones(2))
        (tensor(9.), tensor([ 6., 12.]))
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: Callable[..., Tensor], inputs: _Inputs, v: _Inputs | None, create_graph: bool, strict: bool
) -> tuple[Tensor, _TensorOrTensors]:
    leaves = _make_leaves(inputs, create_graph)
    seeds = _vectors(v, leaves, name)
    value, gradient = _value_and_gradient(func, leaves, strict)
    product = _derivatives(gradient, leaves, seeds, create_graph, strict)
    return value if create_graph else value.detach(), _format_output(product, isinstance(inputs, Tensor), create_graph)
