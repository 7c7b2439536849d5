"""Gradients and products with Jacobians, as functions of functions: `grad`, `grad_and_value`, `vjp`, `jvp`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..autograd.grad_mode import is_grad_enabled
from ..creation.factories import ones_like, zeros_like
from ..runtime.errors import ArgumentError, GradientError, ShapeError
from ..runtime.tensor import Tensor
from .leaves import (
    ArgumentNumbers,
    Tree,
    check_tensors,
    detach_tree,
    flatten_tensors,
    gradients_or_zeros,
    has_variables,
    make_leaves,
    running,
    select_arguments,
    tree_flatten,
    tree_unflatten,
)

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "split_auxiliary", "vjp"]


def split_auxiliary(result: Tree, has_aux: bool, where: str) -> tuple[Tree, Tree]:
    """Return a function's output and its auxiliary data, None unless `has_aux`."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientError(f"{where}: with has_aux the function returns a tuple (output, aux)")
    return result


def grad(func: Callable[..., Any], argnums: ArgumentNumbers = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that computes the gradient of `func`, which returns one number.

    Args:
        func: Function that returns a tensor of shape `()`, or with `has_aux` a tuple of it and further data.
        argnums: The positional argument to differentiate by, or a tuple of several. An argument may be a nested
            container of floating tensors.
        has_aux: Whether `func` returns further data.

    Returns:
        A function with the arguments of `func`. It returns the gradient, with the structure of the argument: for a
        tuple `argnums` a tuple; with `has_aux`, a tuple of the gradient and the data.

    Raises:
        ArgumentError: When called: `argnums` is out of range.
        DTypeError: When called: an argument to differentiate by is not floating.
        GradientError: When called: `func` does not return a tensor of shape `()`.

    Example:
        >>> wg.func.grad(wg.func.grad(lambda x: x**3))(wg.tensor(2.0))
        tensor(12.)
    """
    compute = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        result, value = compute(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: ArgumentNumbers = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that computes the gradient of `func` and its value.

    Args:
        func: See `grad`.
        argnums: See `grad`.
        has_aux: See `grad`.

    Returns:
        A function with the arguments of `func`. It returns the gradient and the value; with `has_aux`, the gradient and
        a tuple of the value and the data.

    Raises:
        ArgumentError: See `grad`.
        GradientError: See `grad`.

    Example:
        >>> wg.func.grad_and_value(lambda x: (x * x).sum())(wg.tensor([1.0, 2.0]))
        (tensor([2., 4.]), tensor(5.))
    """

    @wraps(func)
    def gradient_and_value(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        is_recorded = is_grad_enabled()
        positions, selected = select_arguments(argnums, args, "grad")
        tensors, structure = flatten_tensors(selected, "grad")
        leaves = make_leaves(tensors)
        arguments = _replace(args, positions, tree_unflatten(leaves, structure), argnums)
        with running(leaves):
            value, aux = split_auxiliary(func(*arguments, **kwargs), has_aux, "grad")
        if not isinstance(value, Tensor) or value.ndim:
            text = f"a tensor of {value.ndim} dimensions" if isinstance(value, Tensor) else type(value).__name__
            raise GradientError(f"grad: the function must return a tensor of shape (), not {text}; see vjp and jacrev")
        keep_graph = is_recorded and has_variables([value])
        gradients = gradients_or_zeros([value], leaves, [ones_like(value)], keep_graph)
        if not keep_graph:
            value, aux = value.detach(), detach_tree(aux)
        return tree_unflatten(gradients, structure), (value, aux) if has_aux else value

    return gradient_and_value


def _replace(args: tuple[Tree, ...], positions: list[int], replacement: Tree, argnums: ArgumentNumbers) -> list[Tree]:
    """Return the arguments with others at some positions."""
    arguments = list(args)
    values = replacement if isinstance(argnums, tuple) else (replacement,)
    for position, value in zip(positions, values, strict=True):
        arguments[position] = value
    return arguments


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Call a function, and return with its result a function that computes vector-Jacobian products.

    Args:
        func: Function that returns a tensor or a nested container of tensors; with `has_aux` a tuple of it and data.
        *primals: Arguments: floating tensors or nested containers of them.
        has_aux: Whether `func` returns further data.

    Returns:
        The result, and a function. It takes a cotangent with the structure of the result, and returns a tuple with the
        product for each argument. With `has_aux` the data is the third element.

    Raises:
        GradientError: `func` does not return tensors.
        ArgumentError: In the returned function: a cotangent has another structure than the result.

    Example:
        >>> output, product = wg.func.vjp(lambda x: x * x, wg.tensor([1.0, 2.0]))
        >>> product(wg.tensor([1.0, 10.0]))
        (tensor([ 2., 40.]),)
    """
    is_recorded = is_grad_enabled()
    tensors, structure = flatten_tensors(primals, "vjp")
    leaves = make_leaves(tensors)
    with running(leaves):
        result, aux = split_auxiliary(func(*tree_unflatten(leaves, structure)), has_aux, "vjp")
    outputs, output_structure = flatten_tensors(result, "vjp")
    keep_graph = is_recorded and has_variables(outputs)

    def product(
        cotangent: Tree, *further: Tree, retain_graph: bool = True, create_graph: bool | None = None
    ) -> tuple[Tree, ...]:
        seeds = _matching(
            (cotangent, *further) if further else cotangent, outputs, output_structure, "vjp: the cotangent"
        )
        create = is_grad_enabled() and (keep_graph or has_variables(seeds)) if create_graph is None else create_graph
        results: tuple[Tree, ...] = tree_unflatten(gradients_or_zeros(outputs, leaves, seeds, create), structure)
        return results

    if not keep_graph:
        result, aux = detach_tree(result), detach_tree(aux)
    return (result, product, aux) if has_aux else (result, product)


def _matching(tree: Tree, references: list[Tensor], structure: object, where: str) -> list[Tensor]:
    """Return the tensors of `tree`, whose structure and shapes must be those of `references`."""
    values, own_structure = tree_flatten(tree)
    tensors = check_tensors(values, where)
    if own_structure != structure:
        raise ArgumentError(f"{where} must have the structure {structure}, not {own_structure}")
    for tensor, reference in zip(tensors, references, strict=True):
        if tensor.shape != reference.shape:
            raise ShapeError(f"{where} must have shape {list(reference.shape)}, not {list(tensor.shape)}")
    return tensors


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False,
    has_aux: bool = False,
) -> Any:  # fmt: skip
    """Call a function, and compute the product of its Jacobian and a vector, by differentiating backward twice.

    Args:
        func: Function that returns a tensor or a nested container of tensors; with `has_aux` a tuple of it and data.
        primals: Tuple of the arguments: floating tensors or nested containers of them.
        tangents: Vector: a tuple with the structure and the shapes of `primals`.
        strict: Raise an error if an output does not depend on an argument.
        has_aux: Whether `func` returns further data.

    Returns:
        The result and the product, which has the structure of the result. With `has_aux` the data is the third element.

    Raises:
        ArgumentError: `primals` is no tuple, or `tangents` has another structure.
        ShapeError: A tangent has another shape than its argument.
        GradientError: With `strict`, an output does not depend on an argument.

    Example:
        >>> wg.func.jvp(lambda x: x * x, (wg.tensor([1.0, 2.0]),), (wg.tensor([1.0, 10.0]),))
        (tensor([1., 4.]), tensor([ 2., 40.]))
    """
    result, product, aux = _linearize(func, primals, has_aux, "jvp", strict)
    tangent = product(*tangents) if isinstance(tangents, tuple) else product(tangents)
    return (result, tangent, aux) if has_aux else (result, tangent)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Call a function, and return with its result the linear function of tangents that `jvp` computes.

    The function runs once; each call of the linear function is one backward pass.

    Args:
        func: Function that returns a tensor or a nested container of tensors.
        *primals: Arguments: floating tensors or nested containers of them.

    Returns:
        The result, and a function of tangents.

    Raises:
        ArgumentError: In the returned function: tangents have another structure than the arguments.

    Example:
        >>> output, product = wg.func.linearize(wg.sin, wg.tensor(0.0))
        >>> product(wg.tensor(3.0))
        tensor(3.)
    """
    result, product, _ = _linearize(func, primals, False, "linearize", False)
    return result, product


def _linearize(
    func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, where: str, strict: bool
) -> tuple[Tree, Callable[..., Tree], Tree]:
    """Return the result, a function from tangents to the product of the Jacobian with them, and the data.

    The vector-Jacobian product is linear in the vector. Its derivative with respect to the vector, for a seed, is the
    Jacobian times the seed.
    """
    is_recorded = is_grad_enabled()
    if not isinstance(primals, tuple):
        raise ArgumentError(f"{where}: primals must be a tuple, not {type(primals).__name__}")
    tensors, structure = flatten_tensors(primals, where)
    leaves = make_leaves(tensors)
    with running(leaves):
        result, aux = split_auxiliary(func(*tree_unflatten(leaves, structure)), has_aux, where)
        outputs, output_structure = flatten_tensors(result, where)
        if strict and not all(output.requires_grad for output in outputs):
            raise GradientError(f"{where}: an output does not depend on the arguments; see strict")
        weights = make_leaves([zeros_like(output).detach() for output in outputs])
        with running(weights):
            products = gradients_or_zeros(outputs, leaves, weights, True)
    keep_graph = is_recorded and has_variables(outputs)

    def product(*tangents: Tree) -> Tree:
        seeds = _matching(tangents, leaves, structure, f"{where}: the tangents")
        create_graph = is_grad_enabled() and (keep_graph or has_variables(seeds))
        return tree_unflatten(gradients_or_zeros(products, weights, seeds, create_graph), output_structure)

    if not keep_graph:
        result, aux = detach_tree(result), detach_tree(aux)
    return result, product, aux
