"""Tensor contractions: einsum and tensordot.

Operands are contracted in pairs. Each pair takes one contraction kernel, or one multiplication if nothing is summed.
Dimensions that only one operand has, and that are not in the result, are summed first. Pairs are chosen greedily: the
next pair is the one after which the operands that are left have the fewest elements in total.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import prod
from types import EllipsisType

from .._generated import ops
from ..arguments.out import copy_to_out
from ..runtime import layout, views
from ..runtime.autograd.einsum_rules import contraction
from ..runtime.dispatch import call
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["einsum", "tensordot"]

# A label stands for a dimension. It is the index of a letter in `_LETTERS`, or, for the dimensions of `...`, a negative
# number that counts from the right: -1 is the last one.
Labels = list[int]
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


def einsum(*args: str | Tensor | Sequence[Tensor | int | EllipsisType]) -> Tensor:
    """Evaluate an Einstein summation such as `einsum("bij,bjk->bik", a, b)`.

    Each letter names a dimension. A letter that occurs twice in one operand takes its diagonal. Letters that are not in
    the result are summed over. `...` stands for dimensions that broadcast. Without "->", the result has `...` and then
    the letters that occur once, in alphabetical order.

    Args:
        *args: The equation, then the operands (or one list of them). Or the sublist form: each operand followed by a
            list with a number from 0 to 51 for each of its dimensions, in place of letters, or `...`; and optionally
            such a list for the result.

    Returns:
        Tensor with the dimensions of the result's letters.

    Raises:
        ShapeError: The equation does not fit the operands, or sizes differ (a size of 1 broadcasts).
        ArgumentError: There are no arguments, or an operand is no tensor.

    Example:
        >>> wg.einsum('ij,j->i', wg.tensor([[1, 2], [3, 4]]), wg.tensor([10, 1]))
        tensor([12, 34])
    """
    operands, terms, result = _parse_args(args)
    labels = [_labels(term, x, i) for i, (term, x) in enumerate(zip(terms, operands, strict=True))]
    ellipsis_ndim = -min((n for operand_labels in labels for n in operand_labels if n < 0), default=0)
    result_labels = _result_labels(labels, result, ellipsis_ndim)
    return _contract_all(*_prepare_operands(operands, labels), result_labels)


class _Term:
    """One term of an equation, such as `ab...c`, which names the dimensions of an operand or of the result.

    Attributes:
        left: Labels before `...`, or all labels if there is no `...`.
        right: Labels after `...`; None if there is no `...`.
    """

    __slots__ = ("left", "right")

    def __init__(self, left: Labels, right: Labels | None):
        self.left, self.right = left, right

    def expand(self, ellipsis_ndim: int) -> Labels:
        """Return the labels of all dimensions, where `...` stands for `ellipsis_ndim` dimensions."""
        return self.left if self.right is None else [*self.left, *range(-ellipsis_ndim, 0), *self.right]


def _parse_args(args: Sequence[object]) -> tuple[list[Tensor], list[_Term], _Term | None]:
    """Return (operands, term of each operand, term of the result or None if implicit)."""
    if not args:
        raise ArgumentError("einsum: takes an equation and operands")
    equation = args[0]
    if not isinstance(equation, str):
        return _parse_sublists(args)
    operand_list = args[1] if len(args) == 2 else None
    operands = operand_list if isinstance(operand_list, (list, tuple)) else args[1:]
    terms, result = _parse_equation(equation)
    if not operands:
        raise ShapeError("einsum: there must be at least one operand")
    if len(terms) != len(operands):
        raise ShapeError(f"einsum: the equation {equation!r} is for {len(terms)} operands, not {len(operands)}")
    return _check_operands(operands), terms, result


def _check_operands(operands: Sequence[object]) -> list[Tensor]:
    """Return the operands as a list. Raises `ArgumentError` unless all are tensors."""
    only_tensors("einsum", *operands)
    return [x for x in operands if isinstance(x, Tensor)]


@lru_cache(1024)
def _parse_equation(equation: str) -> tuple[list[_Term], _Term | None]:
    """Return the term of each operand, and that of the result or None. They are cached: do not change their lists."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    return [_parse_term(term, equation) for term in left.split(",")], _parse_term(right, equation) if arrow else None


def _parse_term(text: str, equation: str) -> _Term:
    """Parse one term of an equation, such as `ab...`."""
    parts = text.split("...")
    if len(parts) > 2:
        raise ShapeError(f"einsum: '...' stands twice in {text!r} of {equation!r}")
    for letter in "".join(parts):
        if letter not in _LETTERS:
            raise ShapeError(f"einsum: {letter!r} in {equation!r} is no letter (a-z, A-Z)")
    left, *right = ([_LETTERS.index(letter) for letter in part] for part in parts)
    return _Term(left, right[0] if right else None)


def _parse_sublists(args: Sequence[object]) -> tuple[list[Tensor], list[_Term], _Term | None]:
    """Parse the sublist form: operand, labels, operand, labels, …, and optionally the labels of the result."""
    result = _parse_sublist(args[-1]) if len(args) % 2 else None
    pairs = args[: len(args) - len(args) % 2]
    return _check_operands(pairs[::2]), [_parse_sublist(sublist) for sublist in pairs[1::2]], result


def _parse_sublist(items: object) -> _Term:
    """Parse a list of labels and at most one `...`."""
    if not isinstance(items, Iterable) or isinstance(items, Tensor):
        raise ArgumentError(f"einsum: the dimensions of an operand are a list, not {type(items).__name__}")
    parts: list[Labels] = [[]]
    for item in items:
        if item is ...:
            parts.append([])
        elif type(item) is int and 0 <= item < len(_LETTERS):
            parts[-1].append(item)
        else:
            parts = []
            break
    if not 1 <= len(parts) <= 2:
        raise ShapeError(f"einsum: a dimension is a number from 0 to 51, or '...' once, not {list(items)!r}")
    return _Term(parts[0], parts[1] if len(parts) == 2 else None)


def _labels(term: _Term, operand: Tensor, position: int) -> Labels:
    """Return a label for each dimension of an operand."""
    count = len(term.left) + len(term.right or ())
    ellipsis_ndim = operand.meta.ndim - count
    if ellipsis_ndim < 0 or (ellipsis_ndim and term.right is None):
        raise ShapeError(
            f"einsum: operand {position} has shape {list(operand.meta.shape)}, and the equation names {count} of its "
            "dimensions"
        )
    return term.expand(ellipsis_ndim)


def _result_labels(labels: list[Labels], explicit: _Term | None, ellipsis_ndim: int) -> Labels:
    """Return the labels of the result: those after "->", or else `...` and the labels that occur once."""
    all_labels = [n for operand_labels in labels for n in operand_labels]
    if explicit is None:
        return [*range(-ellipsis_ndim, 0), *sorted({n for n in all_labels if n >= 0 and all_labels.count(n) == 1})]
    result_labels = explicit.expand(ellipsis_ndim)
    for n in result_labels:
        if result_labels.count(n) > 1:
            raise ShapeError(f"einsum: {_LETTERS[n]!r} stands twice in the result")
        if n not in all_labels:
            raise ShapeError(f"einsum: {_LETTERS[n]!r} of the result is in no operand")
    return result_labels


def _prepare_operands(
    operands: Sequence[Tensor], labels: list[Labels]
) -> tuple[list[Tensor], list[Labels], dict[int, int]]:
    """Take diagonals of repeated labels and drop dimensions of size 1 that broadcast.

    Returns:
        The operands, the labels of each, and the size of each label.
    """
    prepared, names = [], []
    sizes: dict[int, int] = {}
    for position, (x, operand_labels) in enumerate(zip(operands, labels, strict=True)):
        operand_labels = list(operand_labels)
        for n in dict.fromkeys(operand_labels):
            while operand_labels.count(n) > 1:
                first = operand_labels.index(n)
                second = operand_labels.index(n, first + 1)
                if x.meta.shape[first] != x.meta.shape[second]:
                    raise ShapeError(
                        f"einsum: {_label_text(n)} is {x.meta.shape[first]} and {x.meta.shape[second]} in operand "
                        f"{position} of shape {list(operands[position].meta.shape)}"
                    )
                x = call(registry["diagonal"], (x,), (0, first, second))
                operand_labels = [m for d, m in enumerate(operand_labels) if d not in (first, second)] + [n]
        for n, size in zip(operand_labels, x.meta.shape, strict=True):
            known_size = sizes.setdefault(n, size)
            if known_size == 1:
                sizes[n] = size
            elif size not in (1, known_size):
                raise ShapeError(f"einsum: {_label_text(n)} is {size} in operand {position}, and {known_size} before")
        prepared.append(x)
        names.append(operand_labels)
    for i, x in enumerate(prepared):
        ones = tuple(d for d, n in enumerate(names[i]) if x.meta.shape[d] == 1 and sizes[n] != 1)
        if ones:
            prepared[i] = call(registry["squeeze"], (x,), (ones,))
            names[i] = [n for d, n in enumerate(names[i]) if d not in ones]
    return prepared, names, sizes


def _label_text(n: int) -> str:
    return f"dimension {n} of '...'" if n < 0 else repr(_LETTERS[n])


def _contract_all(operands: list[Tensor], labels: list[Labels], sizes: dict[int, int], result: Labels) -> Tensor:
    """Contract the operands pair by pair, summing over all labels that are not in `result`."""
    operands, labels = list(operands), [list(operand_labels) for operand_labels in labels]
    missing = [n for n in result if all(n not in operand_labels for operand_labels in labels)]
    assert not missing
    while True:
        for i, operand_labels in enumerate(labels):
            other_labels = {n for j, other_operand in enumerate(labels) if j != i for n in other_operand} | set(result)
            summed_dims = tuple(d for d, n in enumerate(operand_labels) if n not in other_labels)
            if summed_dims:
                operands[i] = call(registry["sum"], (operands[i],), (summed_dims, False, None))
                labels[i] = [n for d, n in enumerate(operand_labels) if d not in summed_dims]
        if len(operands) == 1:
            break
        i, j = _cheapest_pair(labels, sizes, result)
        remaining = {n for k, operand_labels in enumerate(labels) if k not in (i, j) for n in operand_labels} | set(
            result
        )
        target = result if len(operands) == 2 else None
        product, operand_labels = _contract_pair(operands[i], labels[i], operands[j], labels[j], remaining, target)
        operands = [x for k, x in enumerate(operands) if k not in (i, j)] + [product]
        labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [operand_labels]
    x, operand_labels = operands[0], labels[0]
    if operand_labels != result:
        x = call(registry["permute"], (x,), (tuple(operand_labels.index(n) for n in result),))
    return x


def _cheapest_pair(labels: list[Labels], sizes: dict[int, int], result: Labels) -> tuple[int, int]:
    """Return the first pair with the smallest (elements of the product) - (elements of both operands)."""
    if len(labels) == 2:
        return 0, 1

    def added_size(pair: tuple[int, int]) -> int:
        a, b = (set(labels[k]) for k in pair)
        other_labels = {n for k, operand_labels in enumerate(labels) if k not in pair for n in operand_labels} | set(
            result
        )
        result_size = prod(sizes[n] for n in (a | b) & other_labels)
        return result_size - prod(sizes[n] for n in a) - prod(sizes[n] for n in b)

    return min(combinations(range(len(labels)), 2), key=added_size)


def _contract_pair(
    a: Tensor, first: Labels, b: Tensor, second: Labels, outer_labels: set[int], target: Labels | None
) -> tuple[Tensor, Labels]:
    """Contract two operands over the labels that both have and that nothing else needs.

    Args:
        a: First operand.
        first: Its labels.
        b: Second operand.
        second: Its labels.
        outer_labels: Labels of the result and of the other operands, which are not summed over.
        target: Labels of the final result, if this is the last pair.

    Returns:
        The product and its labels, in the order of `target` if that needs no copy.
    """
    summed = [n for n in first if n in second and n not in outer_labels]
    if not summed:
        output_labels = target or _union_labels(first, second)
        return ops.mul(_align_dims(a, first, output_labels), _align_dims(b, second, output_labels)), output_labels
    batch_labels = [n for n in first if n in second and n in outer_labels]
    a_only, b_only = [n for n in first if n not in second], [n for n in second if n not in first]
    if target is not None and target == [*batch_labels, *b_only, *a_only]:
        a, first, b, second, a_only, b_only = b, second, a, first, b_only, a_only
    output_labels = [*batch_labels, *a_only, *b_only]
    if target is not None and target != output_labels and set(target[: len(batch_labels)]) == set(batch_labels):
        # Row and column labels may come in any order, as long as the last one belongs to the second operand only.
        output_labels = target if target[-1:] and target[-1] in b_only else output_labels
    names = {n: _LETTERS[k] for k, n in enumerate(dict.fromkeys([*first, *second]))}
    terms = ["".join(names[n] for n in term_labels) for term_labels in (first, second, output_labels)]
    return call(contraction(f"{terms[0]},{terms[1]}->{terms[2]}"), (a, b)), output_labels


def _union_labels(first: Labels, second: Labels) -> Labels:
    """Return the labels of `first`, then those that only `second` has."""
    return first + [n for n in second if n not in first]


def _align_dims(x: Tensor, labels: Labels, target_labels: Labels) -> Tensor:
    """Permute the dimensions of `x` to the order of `target_labels`, with size 1 for labels that it does not have."""
    order = [n for n in target_labels if n in labels]
    if order != labels:
        x = call(registry["permute"], (x,), (tuple(labels.index(n) for n in order),))
    shape = tuple(x.meta.shape[order.index(n)] if n in labels else 1 for n in target_labels)
    return x if shape == x.meta.shape else views.reshape(x, shape)


def tensordot(
    a: Tensor, b: Tensor, dims: int | Tensor | Sequence[int] | Sequence[Sequence[int]] = 2, *, out: Tensor | None = None
) -> Tensor:
    """Return the sum of products over pairs of dimensions, one of `a` and one of `b`.

    Args:
        a: First operand.
        b: Second operand.
        dims: An int, for the last `dims` dimensions of `a` and the first ones of `b`; or two lists of dimensions.
        out: Tensor to write the result to.

    Returns:
        Tensor with the remaining dimensions of `a`, then those of `b`.

    Raises:
        ArgumentError: `a` or `b` is no tensor.
        ShapeError: The sizes of a pair differ (a size of 1 broadcasts), or `dims` is invalid.
        IndexOutOfRange: A dimension does not exist.

    Example:
        >>> wg.tensordot(wg.tensor([[1, 2], [3, 4]]), wg.tensor([[1, 0], [0, 1]]), dims=2)
        tensor(5)
    """
    only_tensors("tensordot", a, b)
    axes: int | Sequence[int] | Sequence[Sequence[int]] = dims.tolist() if isinstance(dims, Tensor) else dims
    if isinstance(axes, int):
        if axes < 0:
            raise ShapeError(f"tensordot: dims must not be negative, got {axes}")
        if axes > min(a.meta.ndim, b.meta.ndim):
            raise ShapeError(
                f"tensordot: dims={axes} is more than the dimensions of {list(a.meta.shape)} or {list(b.meta.shape)}"
            )
        dim_pairs: list[Sequence[int]] = [range(a.meta.ndim - axes, a.meta.ndim), range(axes)]
    else:
        dim_pairs = [(d,) if isinstance(d, int) else tuple(d) for d in axes]
    if len(dim_pairs) != 2 or len(dim_pairs[0]) != len(dim_pairs[1]):
        raise ShapeError(f"tensordot: dims must name as many dimensions of one as of the other, not {axes!r}")
    left = [layout.normalize_dim(d, a.meta.ndim, "tensordot") for d in dim_pairs[0]]
    right = [layout.normalize_dim(d, b.meta.ndim, "tensordot") for d in dim_pairs[1]]
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(f"tensordot: a dimension appears twice in dims={dims!r}")
    first = list(range(a.meta.ndim))
    second = [left[right.index(d)] if d in right else a.meta.ndim + d for d in range(b.meta.ndim)]
    for i, j in zip(left, right, strict=True):
        n, m = a.meta.shape[i], b.meta.shape[j]
        if n != m and 1 not in (n, m):
            raise ShapeError(f"tensordot: dimension {i} of the first is {n}, dimension {j} of the second {m}")
    result = [n for n in first if n not in left] + [n for n in second if n not in left]
    output = _contract_all(*_prepare_operands([a, b], [first, second]), result)
    return output if out is None else copy_to_out(output, out, "tensordot")
