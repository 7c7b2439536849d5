"""Map functions over a dimension of their arguments: `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

from ..random import default_generator
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape.joining import stack
from .leaves import Tree, tree_flatten, tree_unflatten

__all__ = ["vmap"]

_Dims: TypeAlias = Any
"""A dimension, None, or nested containers of them."""


def vmap(
    func: Callable[..., Any], in_dims: _Dims = 0, out_dims: _Dims = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Return a function that calls `func` for each slice of its arguments, and stacks the results.

    Results are those of PyTorch's `vmap`, which joins the calls into one. Here every slice is a call, so that the
    duration grows with their number; a function that is written for batches is faster.

    Args:
        func: Function that returns a tensor or a nested container of tensors.
        in_dims: The dimension of each positional argument to map over, or None for an argument that every call gets
            whole: one for all, or a tuple with the structure of the arguments. Keyword arguments are mapped over 0.
        out_dims: The new dimension of each result, or None for a result that is the same in all calls.
        randomness: "different" random numbers in each call, the "same", or an "error" if a call draws any.
        chunk_size: Accepted for compatibility.

    Returns:
        A function with the arguments of `func`.

    Raises:
        ArgumentError: An argument is wrong; when called: sizes of the mapped dimensions differ or are 0, there is
            nothing to map over, a result is no tensor, or `func` draws random numbers.

    Example:
        >>> wg.func.vmap(wg.dot)(wg.tensor([[1.0, 2.0], [3.0, 4.0]]), wg.tensor([[1.0, 1.0], [2.0, 0.0]]))
        tensor([3., 6.])
    """
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(f'vmap: randomness is "error", "different" or "same", not {randomness!r}')
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError(f"vmap: chunk_size must be positive, not {chunk_size}")
    if not isinstance(in_dims, int | tuple | list):
        raise ArgumentError(f"vmap: in_dims is an int or a tuple, not {in_dims!r}")

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        values, structure = tree_flatten((args, kwargs))
        arg_dims = _dims_of(in_dims if isinstance(in_dims, int) else tuple(in_dims), args, "in_dims")
        dims = arg_dims + [0] * len(tree_flatten(kwargs)[0])
        count = _count_slices(values, dims)
        results = []
        for index in range(count):
            slices = [v if dim is None else v.select(dim, index) for v, dim in zip(values, dims, strict=True)]
            slice_args, slice_kwargs = tree_unflatten(slices, structure)
            results.append(_call(func, slice_args, slice_kwargs, randomness, is_last=index == count - 1))
        return _stack_results(results, out_dims)

    return mapped


def _call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], randomness: str, is_last: bool
) -> Any:
    """Call the function for one slice, under the rule for random numbers."""
    offset = default_generator.offset
    result = func(*args, **kwargs)
    if randomness == "error" and default_generator.offset != offset:
        raise ArgumentError('vmap: the function draws random numbers; say randomness="different" or "same"')
    if randomness == "same" and not is_last:
        default_generator.offset = offset
    return result


def _dims_of(dims: _Dims, tree: Tree, name: str) -> list[int | None]:
    """Return a dimension, or None, for each leaf of `tree`; a dimension for a container holds for all inside."""
    if isinstance(dims, int) or dims is None:
        return [dims] * len(tree_flatten(tree)[0])
    if isinstance(dims, tuple | list) and isinstance(tree, tuple | list) and len(dims) == len(tree):
        children = zip(dims, tree, strict=True)
    elif isinstance(dims, dict) and isinstance(tree, dict) and dims.keys() == tree.keys():
        children = ((dims[key], tree[key]) for key in tree)  # type: ignore[assignment]  # pairs as well
    else:
        raise ArgumentError(f"vmap: {name} {dims!r} do not have the structure of the tensors")
    return [dim for child_dims, child in children for dim in _dims_of(child_dims, child, name)]


def _count_slices(values: list[Any], dims: list[int | None]) -> int:
    sizes = set()
    for value, dim in zip(values, dims, strict=True):
        if dim is None:
            continue
        if not isinstance(value, Tensor):
            raise ArgumentError(f"vmap: in_dims must be None for an argument of type {type(value).__name__}")
        if not -value.ndim <= dim < value.ndim:
            raise ArgumentError(f"vmap: dimension {dim} of a tensor of {value.ndim} dimensions")
        sizes.add(value.shape[dim])
    if len(sizes) != 1:
        text = f"the sizes {sorted(sizes)} differ" if sizes else "there is no dimension to map over"
        raise ArgumentError(f"vmap: {text}")
    count: int = sizes.pop()
    if not count:
        raise ArgumentError("vmap: a dimension of size 0 has no slice to call the function with")
    return count


def _stack_results(results: list[Tree], out_dims: _Dims) -> Tree:
    columns = [tree_flatten(result)[0] for result in results]
    structure = tree_flatten(results[0])[1]
    for value in columns[0]:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"vmap: the function must return tensors, not {type(value).__name__}")
    dims = _dims_of(out_dims, results[0], "out_dims")
    stacked = [
        column[0] if dim is None else stack(column, dim)
        for column, dim in zip(zip(*columns, strict=True), dims, strict=True)
    ]
    return tree_unflatten(stacked, structure)
