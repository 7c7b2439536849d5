"""The variables of transforms: which tensors a derivative is taken of, and whether its result is a variable, too.

A transform differentiates with respect to leaves of its own. A tensor that requires grad is an argument of a transform
outside, or a variable of the program: its leaf is a view, so that derivatives of the result reach it. Another tensor is
detached; its leaf is a variable only while its transform runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from ..autograd.grad_mode import enable_grad
from ..autograd.gradients import grad
from ..creation.factories import zeros_like
from ..runtime.autograd.node import Node
from ..runtime.errors import ArgumentError, DTypeError, GradientError
from ..runtime.tensor import Tensor
from ..torch_names.stand_ins.pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

__all__ = [
    "ArgumentNumbers", "Tree", "check_tensors", "detach_tree", "flatten_tensors", "gradients_or_zeros",
    "has_variables", "make_leaves", "running", "select_arguments", "tree_flatten", "tree_unflatten",
]  # fmt: skip

ArgumentNumbers: TypeAlias = int | tuple[int, ...]
"""The positional arguments that a derivative is taken of."""

Tree: TypeAlias = Any
"""A tensor, or nested tuples, lists and dicts of tensors."""

_leaves: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
_thread = local()


def make_leaves(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a tensor that requires grad for each tensor: a view of it if it requires grad, else detached.

    Args:
        tensors: Floating tensors.

    Returns:
        List of tensors with the same values.

    Raises:
        DTypeError: A tensor is not floating.
    """
    leaves = []
    with enable_grad():
        for tensor in tensors:
            if tensor.dtype.kind != "f":
                raise DTypeError(f"a derivative is taken of floating tensors, not of {tensor.dtype.name}")
            leaf = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
            if leaf.is_leaf:
                _leaves[id(leaf)] = leaf
            leaves.append(leaf)
    return leaves


@contextmanager
def running(leaves: Sequence[Tensor]) -> Iterator[None]:
    """Make the leaves of a transform variables for the transforms inside of its function. Gradients are recorded."""
    active: set[int] = getattr(_thread, "active", set())
    _thread.active = active | {id(leaf) for leaf in leaves}
    try:
        with enable_grad():
            yield
    finally:
        _thread.active = active


def has_variables(tensors: Sequence[Tensor]) -> bool:
    """Return True if a tensor depends on a variable other than the leaves of transforms that have ended."""
    active: set[int] = getattr(_thread, "active", set())

    def is_variable(leaf: Tensor) -> bool:
        return id(leaf) in active or _leaves.get(id(leaf)) is not leaf

    visited: set[int] = set()
    pending: list[Node | Tensor] = [t.grad_fn or t for t in tensors if t.requires_grad]
    while pending:
        node = pending.pop()
        if isinstance(node, Tensor):
            if is_variable(node):
                return True
        elif id(node) not in visited:
            visited.add(id(node))
            pending.extend(source for source, _ in node.edges)
    return False


def gradients_or_zeros(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], seeds: Sequence[Tensor], create_graph: bool
) -> list[Tensor]:
    """Return the vector-Jacobian products of the leaves; zeros for leaves that no output depends on.

    The graph is retained.
    """
    pairs = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    if not pairs:
        return [zeros_like(leaf) for leaf in leaves]
    results = grad(
        [o for o, _ in pairs], leaves, [s for _, s in pairs], retain_graph=True, create_graph=create_graph,
        allow_unused=True,
    )  # fmt: skip
    return [zeros_like(leaf) if g is None else g for g, leaf in zip(results, leaves, strict=True)]


def check_tensors(values: Sequence[object], where: str) -> list[Tensor]:
    """Return the values. Raises `GradientError` if one is no tensor."""
    tensors = []
    for value in values:
        if not isinstance(value, Tensor):
            raise GradientError(f"{where}: takes and returns tensors, not {type(value).__name__}")
        tensors.append(value)
    return tensors


def flatten_tensors(tree: Tree, where: str) -> tuple[list[Tensor], TreeSpec]:
    """Return the tensors of nested containers and the containers' structure."""
    values, structure = tree_flatten(tree)
    return check_tensors(values, where), structure


def select_arguments(argnums: ArgumentNumbers, args: Sequence[Tree], where: str) -> tuple[list[int], Tree]:
    """Return the numbers of arguments as a list from 0 on, and those arguments: a tuple if `argnums` is one.

    Raises `ArgumentError` for a number that is no int, out of range, or there twice.
    """
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    positions = []
    for number in numbers:
        if not isinstance(number, int) or not -len(args) <= number < len(args):
            raise ArgumentError(f"{where}: argnums {argnums!r} for {len(args)} positional arguments")
        positions.append(number % len(args))
    if not positions or len({*positions}) < len(positions):
        raise ArgumentError(f"{where}: argnums must name each argument once, not {argnums!r}")
    selected = tuple(args[position] for position in positions)
    return positions, selected if isinstance(argnums, tuple) else selected[0]


def detach_tree(tree: Tree) -> Tree:
    """Return the containers with detached tensors."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach(), tree)
