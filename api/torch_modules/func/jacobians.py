"""Jacobians and Hessians, as functions of functions: `jacrev`, `jacfwd`, `hessian`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..autograd.grad_mode import is_grad_enabled
from ..creation.factories import ones_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from .gradients import split_auxiliary
from .leaves import (
    ArgumentNumbers,
    detach_tree,
    flatten_tensors,
    gradients_or_zeros,
    has_variables,
    make_leaves,
    running,
    select_arguments,
    tree_unflatten,
)

__all__ = ["hessian", "jacfwd", "jacrev"]


def jacrev(
    func: Callable[..., Any], argnums: ArgumentNumbers = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """Return a function that computes the Jacobian of `func`, a row for each element of the output.

    Args:
        func: Function that returns a tensor or a nested container of tensors; with `has_aux` a tuple of it and data.
        argnums: The positional argument to differentiate by, or a tuple of several.
        has_aux: Whether `func` returns further data.
        chunk_size: Accepted for compatibility; rows are computed one by one.
        _preallocate_and_copy: Accepted for compatibility; no memory depends on it.

    Returns:
        A function with the arguments of `func`. It returns tensors of shape `(*output.shape, *argument.shape)`: for
        each tensor of the output, in the structure of the argument. With `has_aux`, a tuple of that and the data.

    Raises:
        ArgumentError: When called: `argnums` is out of range.
        GradientError: When called: `func` does not return tensors.

    Example:
        >>> wg.func.jacrev(lambda x: x * x)(wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"jacrev: chunk_size must be positive, not {chunk_size}")

    @wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        is_recorded = is_grad_enabled()
        positions, selected = select_arguments(argnums, args, "jacrev")
        tensors, structure = flatten_tensors(selected, "jacrev")
        leaves = make_leaves(tensors)
        replacement = tree_unflatten(leaves, structure)
        arguments = list(args)
        for index, position in enumerate(positions):
            arguments[position] = replacement[index] if isinstance(argnums, tuple) else replacement
        with running(leaves):
            result, aux = split_auxiliary(func(*arguments, **kwargs), has_aux, "jacrev")
            outputs, output_structure = flatten_tensors(result, "jacrev")
            flat_outputs = [output.reshape(-1) for output in outputs]
        keep_graph = is_recorded and has_variables(outputs)
        blocks = [
            tree_unflatten(_rows(flat, output, leaves, keep_graph), structure)
            for flat, output in zip(flat_outputs, outputs, strict=True)
        ]
        jacobians = tree_unflatten(blocks, output_structure)
        return (jacobians, aux if keep_graph else detach_tree(aux)) if has_aux else jacobians

    return jacobian


def _rows(flat: Tensor, output: Tensor, leaves: list[Tensor], create_graph: bool) -> list[Tensor]:
    """Return the Jacobian of one output for each leaf."""
    rows = []
    for i in range(flat.numel()):
        with running(leaves):
            element = flat[i]
        rows.append(gradients_or_zeros([element], leaves, [ones_like(element)], create_graph))
    shapes = [(*output.shape, *leaf.shape) for leaf in leaves]
    if not rows:
        return [leaf.detach().new_zeros(shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    return [stack([row[j] for row in rows]).reshape(shape) for j, shape in enumerate(shapes)]


def jacfwd(
    func: Callable[..., Any], argnums: ArgumentNumbers = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `func`. It equals `jacrev`: there is no forward mode.

    Args:
        func: See `jacrev`.
        argnums: See `jacrev`.
        has_aux: See `jacrev`.
        randomness: Accepted for compatibility; `func` runs once.

    Returns:
        See `jacrev`.

    Raises:
        ArgumentError: See `jacrev`.
        GradientError: See `jacrev`.

    Example:
        >>> wg.func.jacfwd(lambda x: x * x)(wg.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: ArgumentNumbers = 0) -> Callable[..., Any]:
    """Return a function that computes the Hessian of `func`: the Jacobian of its Jacobian.

    Args:
        func: Function that returns a tensor or a nested container of tensors.
        argnums: The positional argument to differentiate by, or a tuple of several.

    Returns:
        A function with the arguments of `func`. It returns tensors of shape
        `(*output.shape, *argument.shape, *argument.shape)`.

    Raises:
        ArgumentError: See `jacrev`.
        GradientError: See `jacrev`.

    Example:
        >>> wg.func.hessian(lambda x: (x**3).sum())(wg.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
