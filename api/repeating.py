"""Tensors repeated, shifted around, turned, and combined with each other: copies of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _hosting
from ._checks import only_tensors
from ._generated import ops
from .assembling import assembled, recording
from .joining import meshgrid, stack
from .runtime import dtypes, layout, views
from .runtime.device import meta
from .runtime.dispatch import call, empty
from .runtime.errors import ArgumentError, DTypeError, ShapeError
from .runtime.records import registry
from .runtime.spelling import spelled_dim
from .runtime.tensor import Tensor

__all__ = ["cartesian_prod", "combinations", "repeat_interleave", "roll", "rot90", "tile"]


def _ints(given: tuple[Any, ...], where: str) -> tuple[int, ...]:
    found = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if any(isinstance(n, (bool, float)) or not hasattr(n, "__index__") for n in found):
        raise ArgumentError(f"{where}: takes ints, not {found!r}")
    return tuple(int(n.__index__()) for n in found)


def repeat(self: Tensor, *sizes: Any, repeats: Sequence[int] | None = None) -> Tensor:
    """The tensor repeated along each dimension; more sizes than dimensions add dimensions in front."""
    times = _ints(sizes if repeats is None else (repeats,), "repeat")
    lead = len(times) - self.meta.ndim
    if lead < 0 or any(n < 0 for n in times):
        raise ShapeError(
            f"repeat: sizes {list(times)} must not be negative, and not fewer than {self.meta.ndim} dimensions"
        )
    shape = (1,) * lead + self.meta.shape
    apart = views.reshape(self, tuple(n for size in shape for n in (1, size)))
    wide = call(registry["expand"], (apart,), (tuple(n for pair in zip(times, shape, strict=True) for n in pair),))
    made = views.reshape(wide, tuple(a * b for a, b in zip(times, shape, strict=True)))
    return ops.contiguous_copy(made) if made.storage is self.storage else made


def tile(input: Tensor, *dims: Any) -> Tensor:
    """As `repeat`, with missing sizes taken as 1."""
    only_tensors("tile", input)
    times = _ints(dims, "tile")
    return repeat(input, (1,) * (input.meta.ndim - len(times)) + times)


def repeat_interleave(
    input: Tensor,
    repeats: Any = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """Every element repeated in its place along `dim` (of the flattened input without it).

    `repeats` is an int, or integers, one an element; of a tensor alone, which then holds the counts, the positions. The
    size of the result, the sum of the counts, is waited for unless `output_size` is given.
    Raises `ShapeError` for counts that do not fit or are negative, `DTypeError` for ones that are no integers.
    """
    only_tensors("repeat_interleave", input)
    if axis is not None:
        dim = spelled_dim("repeat_interleave", dim, None, axis)
    if repeats is None:
        return _positions(input, output_size)
    if dim is None:
        input, dim = views.reshape(input, (-1,)), 0
    at = layout.normalize_dim(dim, input.meta.ndim, "repeat_interleave")
    if not input.meta.ndim:
        input = views.reshape(input, (1,))
    shape = input.meta.shape
    if isinstance(repeats, (tuple, list)):
        repeats = _hosting.from_host(_listed(repeats), dtypes.int64, input.meta.device)
    if isinstance(repeats, Tensor):
        if repeats.meta.ndim > 1 or (repeats.meta.numel != 1 and repeats.meta.numel != shape[at]):
            raise ShapeError(
                f"repeat_interleave: repeats must be a number or {shape[at]} of them, one an element of dimension "
                f"{at}, not of shape {list(repeats.meta.shape)}"
            )
        counts = call(registry["expand"], (views.reshape(repeats, (-1,)),), ((shape[at],),))
        return call(registry["take_at"], (input, _positions(counts, output_size)), (at, 1))  # type: ignore[no-any-return]
    (times,) = _ints((repeats,), "repeat_interleave")
    if times < 0:
        raise ShapeError(f"repeat_interleave: repeats must not be negative, got {times}")
    if output_size is not None and output_size != times * shape[at]:
        raise ShapeError(f"repeat_interleave: the result has size {times * shape[at]}, not output_size={output_size}")
    wide = call(registry["unsqueeze"], (input,), (at + 1,))
    wide = call(registry["expand"], (wide,), (shape[: at + 1] + (times,) + shape[at + 1 :],))
    made = views.reshape(wide, shape[:at] + (shape[at] * times,) + shape[at + 1 :])
    return ops.contiguous_copy(made) if made.storage is input.storage else made


def _listed(repeats: Sequence[Any]) -> Any:
    import numpy as np

    return np.asarray(_ints((repeats,), "repeat_interleave"), np.int64)


def _positions(counts: Tensor, output_size: int | None) -> Tensor:
    """Each position as often as its count says."""
    if counts.meta.ndim != 1:
        raise ShapeError(f"repeat_interleave: counts are a vector, not of shape {list(counts.meta.shape)}")
    if counts.meta.dtype.name not in ("int32", "int64"):
        raise DTypeError(f"repeat_interleave: counts are int32 or int64, not {counts.meta.dtype.name}")
    if not counts.meta.numel:
        return empty(meta(dtypes.int64, (0,), None, counts.meta.device))
    counts = call(registry["copy"], (counts,), (dtypes.int64,))
    ends = _sums(counts)
    if output_size is None:
        found = stack([ops.amin(counts), ops.select(ends, 0, -1)]).tolist()  # type: ignore[attr-defined]
        lowest, size = (int(n) for n in found)
        if lowest < 0:
            raise ShapeError(f"repeat_interleave: repeats must not be negative, the least is {lowest}")
    else:
        (size,) = _ints((output_size,), "repeat_interleave")
    # One is added where a run begins: the sum so far, less one, is the run's number. Empty runs at the end begin behind
    # the result, and are not written.
    ones = ops.contiguous_copy(call(registry["expand"], (_one(counts),), ((counts.meta.numel,),)))
    marks = call(registry["spread_at"], (ones, ops.sub(ends, counts)), ((size,), 0, 1))
    return ops.sub(_sums(marks), 1)


def _one(like: Tensor) -> Tensor:
    """The number 1, int64."""
    return call(registry["full_like_as"], (empty(meta(dtypes.int64, (1,), None, like.meta.device)), 1), (None,))  # type: ignore[no-any-return]


def _sums(vector: Tensor) -> Tensor:
    """The sums of all elements up to each one."""
    return call(registry["cumsum"], (vector,), (0, False, None))  # type: ignore[no-any-return]


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements shifted along `dims`, those that leave at one end entering at the other; without `dims`, flattened.

    Raises `ShapeError` unless there are as many shifts as dims.
    """
    only_tensors("roll", input)
    by = _ints((shifts,), "roll")
    along = () if dims is None else _ints((dims,), "roll")
    if not along:
        if len(by) != 1:
            raise ShapeError(f"roll: {len(by)} shifts need as many dims")
        return views.reshape(roll(views.reshape(input, (-1,)), by, (0,)), input.meta.shape)
    if len(by) != len(along):
        raise ShapeError(f"roll: {len(by)} shifts and {len(along)} dims; there must be one for each")
    total: dict[int, int] = {}
    for shift, dim in zip(by, along, strict=True):
        at = layout.normalize_dim(dim, input.meta.ndim, "roll")
        total[at] = total.get(at, 0) + shift
    return _rolled(input, total)


def _rolled(input: Tensor, by: dict[int, int]) -> Tensor:
    """Every block of `input` that stays together copied to its place: each element is moved once."""
    shape = input.meta.shape
    cuts = {d: -shift % shape[d] for d, shift in by.items() if shape and shape[d] and shift % shape[d]}
    whole = [((0, n, 1), (0, n, 1)) for n in shape]
    blocks = [whole]
    for d, cut in cuts.items():
        n = shape[d]
        halves = (((0, cut, 1), (n - cut, n, 1)), ((cut, n, 1), (0, n - cut, 1)))
        blocks = [[*block[:d], half, *block[d + 1 :]] for block in blocks for half in halves]
    out = empty(meta(input.meta.dtype, shape, None, input.meta.device))
    source = input.detach()  # type: ignore[attr-defined]
    parts = []
    for block in blocks:
        piece = call(registry["index_view"], (source,), tuple(taken for taken, _ in block))
        parts.append((piece, [("index_view", tuple(put for _, put in block))]))
    found = assembled("roll", out, parts, zeros=False)
    back = {d: -shift for d, shift in by.items()}
    return recording("roll", found, [input], [lambda grad: _rolled(grad, back)])


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy turned by 90 degrees k times in the plane of two dimensions, from the first towards the second.

    Raises `ShapeError` unless there are two different dims.
    """
    only_tensors("rot90", input)
    along = _ints((dims,), "rot90")
    if len(along) != 2 or input.meta.ndim < 2:
        raise ShapeError(
            f"rot90: turns in the plane of two dimensions, not {list(along)}, of a tensor with shape "
            f"{list(input.meta.shape)}"
        )
    first, second = (layout.normalize_dim(d, input.meta.ndim, "rot90") for d in along)
    if first == second:
        raise ShapeError(f"rot90: the two dimensions must differ, got {list(along)}")
    turned = input
    if k % 4 in (1, 2):
        turned = ops.flip_view(turned, (second,))
    if k % 4 in (2, 3):
        turned = ops.flip_view(turned, (first,))
    if k % 4 in (1, 3):
        turned = ops.transpose(turned, first, second)
    return ops.contiguous_copy(turned)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element of each vector, a row each; of one vector, that vector.

    Raises `ShapeError` for what is no vector.
    """
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    only_tensors("cartesian_prod", *given)
    for x in given:
        if x.meta.ndim != 1:
            raise ShapeError(f"cartesian_prod: takes vectors, not a tensor of shape {list(x.meta.shape)}")
    if len(given) == 1:
        return given[0]
    return stack([views.reshape(grid, (-1,)) for grid in meshgrid(*given)], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to take r elements of a vector in order, a row each, `with_replacement` the same one again.

    Raises `ShapeError` for what is no vector, or a negative r.
    """
    from .factories import arange

    only_tensors("combinations", input)
    if input.meta.ndim != 1:
        raise ShapeError(f"combinations: takes a vector, not a tensor of shape {list(input.meta.shape)}")
    if r < 0:
        raise ShapeError(f"combinations: r must not be negative, got {r}")
    if not r:
        return empty(meta(input.meta.dtype, (0,), None, input.meta.device))
    grids = meshgrid(*[arange(input.meta.numel, device=input.meta.device)] * r)
    kept = None
    for i in range(r - 1):
        rising = ops.le(grids[i], grids[i + 1]) if with_replacement else ops.lt(grids[i], grids[i + 1])
        kept = rising if kept is None else ops.logical_and(kept, rising)
    if kept is None:
        return views.reshape(input, (-1, 1))
    places = kept.nonzero()  # type: ignore[attr-defined]
    return call(registry["take_at"], (input, places), (0, 1))  # type: ignore[no-any-return]


METHODS = {name: globals()[name] for name in ("repeat", "repeat_interleave", "roll", "rot90", "tile")}
