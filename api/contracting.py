"""Sums of products over named dimensions: einsum, and what is an einsum of a fixed form.

Operands are contracted in pairs. A pair is one contraction kernel (or one multiplication where nothing is summed);
dimensions that only one operand has, and the result has not, are summed before. Which pair comes first is chosen
greedily: that which leaves the least behind.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Any

from ._checks import only_tensors
from ._generated import ops
from .runtime import layout, views
from .runtime.autograd.einsum_rules import contraction
from .runtime.dispatch import call
from .runtime.errors import ArgumentError, ShapeError
from .runtime.records import registry
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["einsum", "tensordot"]

# A letter's number, or a dimension of `...` counted from the right: -1, -2, …
Labels = list[int]
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


def einsum(*args: Any) -> Tensor:
    """The sum of products that an equation such as "bij,bjk->bik" names.

    Arguments: the equation, then the operands (or a list of them); or each operand followed by a list of numbers of its
    dimensions (0 to 51, `...` for any number of dimensions), and last perhaps such a list for the result. A letter
    stands for a dimension; one that is twice in an operand takes its diagonal; letters that the result does not have
    are summed over. `...` are leading dimensions that broadcast. Without "->" the result has the letters that stand
    once, in alphabetical order, behind `...`.

    Raises `ShapeError` for an equation that does not fit the operands, and for sizes that differ (1 broadcasts).
    """
    operands, terms, result = _parsed(args)
    only_tensors("einsum", *operands)
    labels = [_labels(term, x, i) for i, (term, x) in enumerate(zip(terms, operands, strict=True))]
    dots = -min((n for own in labels for n in own if n < 0), default=0)
    wanted = _result(labels, result, dots)
    return _contracted(*_prepared(operands, labels), wanted)


def _parsed(args: tuple[Any, ...]) -> tuple[list[Tensor], list[list[Any]], list[Any] | None]:
    """(operands, the symbols of each, those of the result or None for the implicit ones); a symbol is a letter's number
    or `...`."""
    if not args:
        raise ArgumentError("einsum: takes an equation and operands")
    if not isinstance(args[0], str):
        return _sublists(args)
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    terms, result = _terms(args[0])
    if not operands:
        raise ShapeError("einsum: there must be at least one operand")
    if len(terms) != len(operands):
        raise ShapeError(f"einsum: the equation {args[0]!r} is for {len(terms)} operands, not {len(operands)}")
    return operands, terms, result


@lru_cache(1024)
def _terms(equation: str) -> tuple[list[list[Any]], list[Any] | None]:
    """The symbols of each operand and of the result, which nobody may change."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    return [_symbols(term, equation) for term in left.split(",")], _symbols(right, equation) if arrow else None


def _symbols(term: str, equation: str) -> list[Any]:
    found: list[Any] = []
    parts = term.split("...")
    if len(parts) > 2:
        raise ShapeError(f"einsum: '...' stands twice in {term!r} of {equation!r}")
    for i, part in enumerate(parts):
        found += [...] * (i > 0)
        for letter in part:
            if letter not in _LETTERS:
                raise ShapeError(f"einsum: {letter!r} in {equation!r} is no letter (a-z, A-Z)")
            found.append(_LETTERS.index(letter))
    return found


def _sublists(args: tuple[Any, ...]) -> tuple[list[Tensor], list[list[Any]], list[Any] | None]:
    last = list(args[-1]) if len(args) % 2 else None
    pairs = args[: len(args) - len(args) % 2]
    terms = [list(given) for given in pairs[1::2]]
    for term in (*terms, *([last] if last is not None else ())):
        if any(n is not ... and not (type(n) is int and 0 <= n < len(_LETTERS)) for n in term) or term.count(...) > 1:
            raise ShapeError(f"einsum: a dimension is a number from 0 to 51, or '...' once, not {term!r}")
    return list(pairs[::2]), terms, last


def _labels(term: list[Any], operand: Tensor, position: int) -> Labels:
    """A label for each dimension."""
    ndim = operand.meta.ndim
    dots = ndim - (len(term) - (... in term))
    if dots < 0 or (dots and ... not in term):
        raise ShapeError(
            f"einsum: operand {position} has shape {list(operand.meta.shape)}, and the equation names "
            f"{len(term) - (... in term)} of its dimensions"
        )
    if ... not in term:
        return term
    at = term.index(...)
    return [*term[:at], *range(-dots, 0), *term[at + 1 :]]


def _result(labels: list[Labels], given: list[Any] | None, dots: int) -> Labels:
    every = [n for own in labels for n in own]
    if given is None:
        return [*range(-dots, 0), *sorted({n for n in every if n >= 0 and every.count(n) == 1})]
    found: Labels = []
    for n in given:
        found += range(-dots, 0) if n is ... else [n]
    for n in found:
        if found.count(n) > 1:
            raise ShapeError(f"einsum: {_LETTERS[n]!r} stands twice in the result")
        if n not in every:
            raise ShapeError(f"einsum: {_LETTERS[n]!r} of the result is in no operand")
    return found


def _prepared(operands: Sequence[Tensor], labels: list[Labels]) -> tuple[list[Tensor], list[Labels], dict[int, int]]:
    """Operands without repeated labels and without dimensions of size 1 that are broadcast; sizes by label."""
    made, names = [], []
    sizes: dict[int, int] = {}
    for position, (x, own) in enumerate(zip(operands, labels, strict=True)):
        own = list(own)
        for n in dict.fromkeys(own):
            while own.count(n) > 1:
                first = own.index(n)
                second = own.index(n, first + 1)
                if x.meta.shape[first] != x.meta.shape[second]:
                    raise ShapeError(
                        f"einsum: {_shown(n)} is {x.meta.shape[first]} and {x.meta.shape[second]} in operand "
                        f"{position} of shape {list(operands[position].meta.shape)}"
                    )
                x = call(registry["diagonal"], (x,), (0, first, second))
                own = [m for d, m in enumerate(own) if d not in (first, second)] + [n]
        for n, size in zip(own, x.meta.shape, strict=True):
            have = sizes.setdefault(n, size)
            if have == 1:
                sizes[n] = size
            elif size not in (1, have):
                raise ShapeError(f"einsum: {_shown(n)} is {size} in operand {position}, and {have} before")
        made.append(x)
        names.append(own)
    for i, x in enumerate(made):
        ones = tuple(d for d, n in enumerate(names[i]) if x.meta.shape[d] == 1 and sizes[n] != 1)
        if ones:
            made[i] = call(registry["squeeze"], (x,), (ones,))
            names[i] = [n for d, n in enumerate(names[i]) if d not in ones]
    return made, names, sizes


def _shown(n: int) -> str:
    return f"dimension {n} of '...'" if n < 0 else repr(_LETTERS[n])


def _contracted(operands: list[Tensor], labels: list[Labels], sizes: dict[int, int], result: Labels) -> Tensor:
    """The sum of products over all labels that `result` does not have."""
    operands, labels = list(operands), [list(own) for own in labels]
    missing = [n for n in result if all(n not in own for own in labels)]
    assert not missing
    while True:
        for i, own in enumerate(labels):
            others = {n for j, more in enumerate(labels) if j != i for n in more} | set(result)
            alone = tuple(d for d, n in enumerate(own) if n not in others)
            if alone:
                operands[i] = call(registry["sum"], (operands[i],), (alone, False, None))
                labels[i] = [n for d, n in enumerate(own) if d not in alone]
        if len(operands) == 1:
            break
        i, j = _cheapest(labels, sizes, result)
        rest = {n for k, own in enumerate(labels) if k not in (i, j) for n in own} | set(result)
        target = result if len(operands) == 2 else None
        made, own = _pair(operands[i], labels[i], operands[j], labels[j], rest, target)
        operands = [x for k, x in enumerate(operands) if k not in (i, j)] + [made]
        labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [own]
    x, own = operands[0], labels[0]
    if own != result:
        x = call(registry["permute"], (x,), (tuple(own.index(n) for n in result),))
    return x


def _cheapest(labels: list[Labels], sizes: dict[int, int], result: Labels) -> tuple[int, int]:
    """The pair whose product is the smallest compared with what it replaces; the first of equals."""
    if len(labels) == 2:
        return 0, 1

    def left(pair: tuple[int, int]) -> int:
        a, b = (set(labels[k]) for k in pair)
        others = {n for k, own in enumerate(labels) if k not in pair for n in own} | set(result)
        kept = prod(sizes[n] for n in (a | b) & others)
        return kept - prod(sizes[n] for n in a) - prod(sizes[n] for n in b)

    return min(combinations(range(len(labels)), 2), key=left)


def _pair(
    a: Tensor, first: Labels, b: Tensor, second: Labels, kept: set[int], target: Labels | None
) -> tuple[Tensor, Labels]:
    """The product of two operands summed over what is not kept, and its labels: those of `target` if that takes no
    copy."""
    summed = [n for n in first if n in second and n not in kept]
    if not summed:
        own = target or _joined(first, second)
        return ops.mul(_spread(a, first, own), _spread(b, second, own)), own
    both = [n for n in first if n in second and n in kept]
    one, other = [n for n in first if n not in second], [n for n in second if n not in first]
    if target is not None and target == [*both, *other, *one]:
        a, first, b, second, one, other = b, second, a, first, other, one
    own = [*both, *one, *other]
    if target is not None and target != own and set(target[: len(both)]) == set(both):
        # Rows and columns may be in any order among themselves, as long as the last is one operand's own.
        own = target if target[-1:] and target[-1] in other else own
    names = {n: _LETTERS[k] for k, n in enumerate(dict.fromkeys([*first, *second]))}
    terms = ["".join(names[n] for n in each) for each in (first, second, own)]
    return call(contraction(f"{terms[0]},{terms[1]}->{terms[2]}"), (a, b)), own


def _joined(first: Labels, second: Labels) -> Labels:
    return first + [n for n in second if n not in first]


def _spread(x: Tensor, own: Labels, wanted: Labels) -> Tensor:
    """`x` with its dimensions in the order of `wanted`, and dimensions of size 1 for those that it does not have."""
    order = [n for n in wanted if n in own]
    if order != own:
        x = call(registry["permute"], (x,), (tuple(own.index(n) for n in order),))
    shape = tuple(x.meta.shape[order.index(n)] if n in own else 1 for n in wanted)
    return x if shape == x.meta.shape else views.reshape(x, shape)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, *, out: Tensor | None = None) -> Tensor:
    """Sums of products over pairs of dimensions: the last `dims` of `a` with the first of `b`, or those that two lists
    name. The result has the other dimensions of `a`, then those of `b`.

    Raises `ShapeError` for sizes that differ (1 broadcasts), `IndexOutOfRange` for a dimension that is not there.
    """
    only_tensors("tensordot", a, b)
    if isinstance(dims, Tensor):
        dims = dims.tolist()  # type: ignore[attr-defined]
    if isinstance(dims, int):
        if dims < 0:
            raise ShapeError(f"tensordot: dims must not be negative, got {dims}")
        if dims > min(a.meta.ndim, b.meta.ndim):
            raise ShapeError(
                f"tensordot: dims={dims} is more than the dimensions of {list(a.meta.shape)} or {list(b.meta.shape)}"
            )
        along: list[Sequence[int]] = [range(a.meta.ndim - dims, a.meta.ndim), range(dims)]
    else:
        along = [(d,) if isinstance(d, int) else tuple(d) for d in dims]
    if len(along) != 2 or len(along[0]) != len(along[1]):
        raise ShapeError(f"tensordot: dims must name as many dimensions of one as of the other, not {dims!r}")
    left = [layout.normalize_dim(d, a.meta.ndim, "tensordot") for d in along[0]]
    right = [layout.normalize_dim(d, b.meta.ndim, "tensordot") for d in along[1]]
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(f"tensordot: a dimension appears twice in dims={dims!r}")
    first = list(range(a.meta.ndim))
    second = [left[right.index(d)] if d in right else a.meta.ndim + d for d in range(b.meta.ndim)]
    for i, j in zip(left, right, strict=True):
        n, m = a.meta.shape[i], b.meta.shape[j]
        if n != m and 1 not in (n, m):
            raise ShapeError(f"tensordot: dimension {i} of the first is {n}, dimension {j} of the second {m}")
    result = [n for n in first if n not in left] + [n for n in second if n not in left]
    found = _contracted(*_prepared([a, b], [first, second]), result)
    return found if out is None else store(found, out, "tensordot")
