"""Differences of neighbouring elements, and integrals by the trapezoidal rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .._generated import ops
from ..arguments.aliases import resolve_axis_alias
from ..arguments.out import copy_to_out
from ..runtime import layout, views
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape.joining import cat
from ..tensor_methods.argument_checks import only_tensors, to_integer
from .scans import cumsum

__all__ = ["cumulative_trapezoid", "diff", "gradient", "trapezoid", "trapz"]


def _narrow(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Call the view op `narrow` without the checks of `Tensor.narrow`."""
    return call(registry["narrow"], (tensor,), (dim, start, length))


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
    out: Tensor | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the n-th difference along `dim`: each element minus the one before it, `n` times.

    Args:
        input: Tensor with at least one dimension. For bool, the difference is `logical_xor`.
        n: Number of times to take the difference.
        dim: Dimension; negative values count from the last.
        prepend: Tensor to concatenate before `input` along `dim`.
        append: Tensor to concatenate after `input` along `dim`.
        out: Tensor to write the result to.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor with `n` elements fewer along `dim`.

    Raises:
        ShapeError: The input has no dimensions, `n` is negative, or shapes differ outside of `dim`.
        ArgumentError: `n` is not an integer.

    Example:
        >>> wg.diff(wg.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    if axis is not None:
        dim = resolve_axis_alias("diff", dim, -1, axis)
    only_tensors("diff", input, *(t for t in (prepend, append) if t is not None))
    input_layout = input.meta
    if not input_layout.ndim:
        raise ShapeError("diff: takes tensors of one dimension at least; reshape() it to (1,)")
    dim = layout.normalize_dim(dim, input_layout.ndim, "diff")
    if isinstance(n, int) and n < 0:  # as in PyTorch, a RuntimeError
        raise ShapeError(f"diff: the order n must not be negative, got {n}")
    n = to_integer(n, "diff", "n")
    for name, operand in (("prepend", prepend), ("append", append)):
        if operand is not None:
            _check_joinable(input_layout.shape, operand.meta.shape, dim, name)
    if n and not (prepend is None and append is None):
        input = cat([t for t in (prepend, input, append) if t is not None], dim)
    output = _differences(input, n, dim)
    return output if out is None else copy_to_out(output, out, "diff")


def _check_joinable(input_shape: tuple[int, ...], shape: tuple[int, ...], dim: int, name: str) -> None:
    """Raise `ShapeError` unless the argument `name` can be concatenated with the input along `dim`."""
    has_same_rank = len(shape) == len(input_shape)
    if not has_same_rank or (*shape[:dim], *shape[dim + 1 :]) != (*input_shape[:dim], *input_shape[dim + 1 :]):
        raise ShapeError(
            f"diff: {name} has shape {list(shape)}, input {list(input_shape)}; they must be equal except in dimension "
            f"{dim}"
        )


def _differences(input: Tensor, n: int, dim: int) -> Tensor:
    """Return the n-th difference along `dim`; a dimension that is too short for it becomes empty."""
    if not n:
        return input.clone()
    for _ in range(min(n, input.meta.shape[dim])):
        length = input.meta.shape[dim] - 1
        pair = _narrow(input, dim, 1, length), _narrow(input, dim, 0, length)
        input = ops.logical_xor(*pair) if input.meta.dtype.kind == "b" else ops.sub(*pair)
    return input


# Trapezoidal rule -----------------------------------------------------------------------------------------------------


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """Integrate `y` along `dim` by the trapezoidal rule: the sum of (x[i] - x[i-1]) * (y[i] + y[i-1]) / 2.

    Args:
        y: Values of the function at the points.
        x: Positions of the points: a vector, or a tensor that broadcasts with `y`. None: neighbours have the distance
            `dx`.
        dx: Distance between neighbouring points; None: 1. Pass only one of `x` and `dx`.
        dim: Dimension of the points; negative values count from the last.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor of the shape of `y` without `dim`.

    Raises:
        ArgumentError: `x` and `dx` are combined.
        DTypeError: `y` or `x` is bool.
        ShapeError: `x` has the wrong number of points.
        IndexOutOfRange: `y` does not have the dimension `dim`.

    Example:
        >>> wg.trapezoid(wg.tensor([1.0, 2.0, 3.0]))
        tensor(4.)
    """
    dim = _check_points("trapezoid", y, x, dx, dim, axis)
    if not y.meta.shape[dim]:
        return ops.sum(y, dim, dtype=y.meta.dtype)  # without points, the integral is 0
    if x is None:
        # With equal distances, every point counts fully except for the first and the last, which count half.
        ends = ops.add(*(call(registry["select"], (y,), (dim, i)) for i in (0, -1)))
        return ops.mul(ops.sub(ops.sum(y, dim), ops.mul(ends, 0.5)), 1.0 if dx is None else dx)
    return ops.mul(ops.sum(_double_strip_areas("trapezoid", y, x, dim), dim), 0.5)


trapz = trapezoid


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1, axis: int | None = None
) -> Tensor:
    """Integrate `y` along `dim` from the first point to each later one, by the rule of `trapezoid`.

    Args:
        y: Values of the function at the points.
        x: Positions of the points: a vector, or a tensor that broadcasts with `y`. None: neighbours have the distance
            `dx`.
        dx: Distance between neighbouring points; None: 1. Pass only one of `x` and `dx`.
        dim: Dimension of the points; negative values count from the last.
        axis: NumPy's name for `dim`.

    Returns:
        Tensor with one element fewer than `y` along `dim`.

    Raises:
        ArgumentError: `x` and `dx` are combined.
        DTypeError: `y` or `x` is bool.
        ShapeError: `x` has the wrong number of points.
        IndexOutOfRange: `y` does not have the dimension `dim`.

    Example:
        >>> wg.cumulative_trapezoid(wg.tensor([1.0, 2.0, 3.0]))
        tensor([1.5000, 4.0000])
    """
    dim = _check_points("cumulative_trapezoid", y, x, dx, dim, axis)
    if x is not None:
        return ops.mul(cumsum(_double_strip_areas("cumulative_trapezoid", y, x, dim), dim), 0.5)
    return cumsum(ops.mul(_combine_neighbours(y, dim, ops.add), 0.5 if dx is None else dx / 2), dim)


def _check_points(where: str, y: Tensor, x: Tensor | None, dx: float | None, dim: int, axis: int | None) -> int:
    """Return the dimension of the points, not negative. Raises if the arguments do not fit together."""
    if axis is not None:
        dim = resolve_axis_alias(where, dim, -1, axis)
    only_tensors(where, y, *(() if x is None else (x,)))
    if x is not None and dx is not None:
        raise ArgumentError(f"{where}: x and dx both say how far points are apart; pass one of them")
    if not y.meta.ndim:
        raise IndexOutOfRange(f"{where}: y is a 0-d tensor and has no dimension {dim!r}; reshape() it to (1,)")
    for name, operand in (("y", y), ("x", x)):
        if operand is not None and operand.meta.dtype.kind == "b":
            raise DTypeError(f"{where}: {name} is bool; convert it with .float()")
    return layout.normalize_dim(dim, y.meta.ndim, where)


def _combine_neighbours(tensor: Tensor, dim: int, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return `function` of each element along `dim` but the first, and the one before it."""
    length = max(tensor.meta.shape[dim] - 1, 0)
    start = min(1, tensor.meta.shape[dim])
    return function(_narrow(tensor, dim, start, length), _narrow(tensor, dim, 0, length))


def _double_strip_areas(where: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Return twice the area of each strip between neighbouring points: its width times the sum of its two heights."""
    shape, x_shape = y.meta.shape, x.meta.shape
    if len(x_shape) == 1:
        if x_shape[0] != shape[dim]:
            raise ShapeError(
                f"{where}: y has {shape[dim]} points in dimension {dim}, x has {x_shape[0]}; make them equal"
            )
        x = views.reshape(x, tuple(x_shape[0] if d == dim else 1 for d in range(len(shape))))
    elif len(x_shape) < len(shape):
        x = views.reshape(x, (1,) * (len(shape) - len(x_shape)) + x_shape)
    return ops.mul(_combine_neighbours(y, dim, ops.add), _combine_neighbours(x, dim, ops.sub))


def gradient(
    input: Tensor, *, spacing: float | Sequence[float | Tensor] = 1, dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return estimates of the derivative along each dimension, by differences of neighbours.

    Inside, they are exact for polynomials of degree 2, also where points are not equally spaced.

    Args:
        input: Values of a function at the points of a grid. Integers become the default floating dtype.
        spacing: Distance of neighbours; a number for each dimension; or a vector of coordinates for each dimension.
        dim: Dimension or dimensions; None: all.
        edge_order: Degree of polynomials for which the estimates at both ends are exact, 1 or 2.

    Returns:
        A tensor of the shape of `input` for each dimension.

    Raises:
        ArgumentError: `edge_order` is neither 1 nor 2, or `spacing` has another number of elements than `dim`.
        ShapeError: A dimension has less than `edge_order` + 1 elements, or coordinates have another number of them.
        DTypeError: `input` is bool.

    Example:
        >>> wg.gradient(wg.tensor([1.0, 4.0, 9.0, 16.0]))
        (tensor([3., 4., 6., 7.]),)
    """
    only_tensors("gradient", input)
    if input.meta.dtype.kind == "b":
        raise DTypeError("gradient: input is bool; convert it with .float()")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order is 1 or 2, not {edge_order!r}")
    dims = range(input.meta.ndim) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = [layout.normalize_dim(d, input.meta.ndim, "gradient") for d in dims]
    spacings = tuple(spacing) if isinstance(spacing, Sequence) else (spacing,) * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(f"gradient: {len(axes)} dimensions take as many elements of spacing, not {len(spacings)}")
    return tuple(_slopes(input, d, h, edge_order) for d, h in zip(axes, spacings, strict=True))


def _slopes(values: Tensor, dim: int, spacing: float | Tensor, edge_order: int) -> Tensor:
    """Return the estimates of `gradient` along one dimension."""
    count = values.meta.shape[dim]
    if count < edge_order + 1:
        raise ShapeError(
            f"gradient: dimension {dim} has {count} elements; edge_order={edge_order} takes {edge_order + 1} or more"
        )
    rises = _combine_neighbours(values, dim, ops.sub)
    if isinstance(spacing, Tensor) and spacing.meta.ndim:
        if spacing.meta.shape != (count,):
            raise ShapeError(
                f"gradient: dimension {dim} has {count} elements, its coordinates the shape {list(spacing.meta.shape)}"
            )
        steps = _combine_neighbours(spacing, 0, ops.sub)
        steps = views.reshape(steps, tuple(count - 1 if d == dim else 1 for d in range(values.meta.ndim)))
        slopes = ops.true_divide(rises, steps)  # between neighbours
    else:
        slopes = ops.true_divide(rises, spacing)
        steps = None
    first, last = _narrow(slopes, dim, 0, 1), _narrow(slopes, dim, count - 2, 1)
    if count == 2:
        return cat([first, last], dim)
    before, after = _narrow(slopes, dim, 0, count - 2), _narrow(slopes, dim, 1, count - 2)
    if steps is None:
        shares: Tensor | float = 0.5
    else:
        step_before, step_after = _narrow(steps, dim, 0, count - 2), _narrow(steps, dim, 1, count - 2)
        shares = ops.true_divide(step_before, ops.add(step_before, step_after))
    # The slope of the parabola through three points: at the middle one a mean of both slopes, whose weights are the
    # other intervals' shares; it is linear, so that at both ends it differs by as much on the other side.
    inside = ops.add(before, ops.mul(ops.sub(after, before), shares))
    if edge_order == 2:
        first = ops.sub(ops.mul(first, 2), _narrow(inside, dim, 0, 1))
        last = ops.sub(ops.mul(last, 2), _narrow(inside, dim, count - 3, 1))
    return cat([first, inside, last], dim)


METHODS = {"diff": diff}
