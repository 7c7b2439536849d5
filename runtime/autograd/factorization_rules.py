"""Gradients of factorizations and of linear systems, made of ops, so that they can be differentiated again.

The formulas are those of Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008), sections 2.2 and 2.3, and for LU of de Hoog, Anderssen and Lukas, "Differentiation
of matrix functionals using triangular factorization" (2011). They hold for one matrix; here each is a batch of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .. import dtypes
from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from .einsum_rules import contraction
from .node import Node
from .rules import arange

__all__ = ["rules"]

_EPSILON = {dtypes.float32: 2.0**-23, dtypes.float64: 2.0**-52}


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of an op of `codegen/specs/linear_systems.yaml`."""
    return _RULES[record.name]


class _Values(TypedDict, total=False):
    """What the rules read, and `right_gradient`, which the rules of one op share. A missing gradient is None."""

    grad: Tensor
    grad_packed: Tensor
    grad_factor: Tensor
    grad_det: Tensor | None
    grad_logabs: Tensor | None
    input: Tensor
    right: Tensor
    packed: Tensor
    pivots: Tensor
    permutation: Tensor
    factor: Tensor
    out: Tensor
    right_gradient: Tensor


def _op(name: str, *operands: Any, statics: tuple[Any, ...] = ()) -> Tensor:
    return call(registry[name], operands, statics)


def _transpose(matrix: Tensor) -> Tensor:
    return _op("transpose", matrix, statics=(1, 2))


def _product(equation: str, a: Tensor, b: Tensor) -> Tensor:
    return call(contraction(equation), (a, b))


def _triangle(matrix: Tensor, diagonal: int, lower: bool) -> Tensor:
    return _op("triangle", matrix, statics=(diagonal, lower))


def _solve_upper(matrix: Tensor, right: Tensor, unit: bool = False) -> Tensor:
    return _op("triangle_solve", matrix, right, statics=(False, unit))


def _cholesky(node: Node, values: _Values, position: int) -> Tensor:
    """Return U^-1 (S + S^T) U^-T / 2, where S is the lower triangle of U grad^T with half of its diagonal."""
    factor, grad = values["factor"], _triangle(values["grad_factor"], 0, False)
    product = _product("bij,bkj->bik", factor, grad)
    symmetric = _op("add", _triangle(product, 0, True), _transpose(_triangle(product, -1, True)))
    halved = _op("mul", symmetric, 0.5)
    return _solve_upper(factor, _transpose(_solve_upper(factor, halved)))


def _lu(node: Node, values: _Values, position: int) -> Tensor:
    """Return P^T L^-T (the strict lower triangle of L^T grad_L, and the upper one of grad_U U^T) U^-T.

    With more columns than rows, the further columns of U are L^-1 P A, and with more rows the further rows of L are
    A U^-1: their gradients take part in those of the square part.
    """
    packed, grad, permutation = values["packed"], values["grad_packed"], values["permutation"]
    batch, m, n = packed.meta.shape
    count = min(m, n)
    square, grad_square = _part(packed, 0, count, 0, count), _part(grad, 0, count, 0, count)
    lower = _triangle(square, -1, True)
    grad_lower = _triangle(grad_square, -1, True)
    left = _op("add", _product("bji,bjk->bik", lower, grad_lower), grad_lower)
    right = _product("bij,bkj->bik", _triangle(grad_square, 0, False), _triangle(square, 0, False))
    if n > m:
        left = _op("sub", left, _product("bij,bkj->bik", _part(grad, 0, m, m, n), _part(packed, 0, m, m, n)))
    if m > n:
        right = _op("sub", right, _product("bji,bjk->bik", _part(packed, n, m, 0, n), _part(grad, n, m, 0, n)))
    middle = _op("add", _triangle(left, -1, True), _triangle(right, 0, False))
    rows = _transpose(_solve_upper(square, _transpose(middle)))
    gradient = _solve_upper(_transpose(square), rows, True)
    if n > m:
        further = _solve_upper(_transpose(square), _part(grad, 0, m, m, n), True)
        positions = arange((n,), packed.meta.device)
        shape = (batch, m, n)
        gradient = _op(
            "add",
            _op("spread_at", gradient, _op("narrow", positions, statics=(0, 0, m)), statics=(shape, 2, 1)),
            _op("spread_at", further, _op("narrow", positions, statics=(0, m, n - m)), statics=(shape, 2, 1)),
        )
    result = _to_rows(gradient, permutation, 0, count, m)
    if m > n:
        further = _transpose(_solve_upper(square, _transpose(_part(grad, n, m, 0, n))))
        result = _op("add", result, _to_rows(further, permutation, n, m, m))
    return result


def _part(matrix: Tensor, top: int, bottom: int, left: int, right: int) -> Tensor:
    """Return a block of rows and columns, as a view."""
    return _op("slice", _op("slice", matrix, statics=(1, top, bottom, 1)), statics=(2, left, right, 1))


def _to_rows(source: Tensor, permutation: Tensor, start: int, end: int, count: int) -> Tensor:
    """Return zeros with `count` rows, and row i of `source` in row `permutation[start + i]`."""
    batch, _, n = source.meta.shape
    index = _op("unsqueeze", _op("slice", permutation, statics=(1, start, end, 1)), statics=(2,))
    index = _op("expand", index, statics=(source.meta.shape,))
    return _op("spread", source, index, statics=((batch, count, n), 1))


def _determinants(node: Node, values: _Values, position: int) -> Tensor:
    """Return A^-T times (grad_det det + grad_logabs).

    Zeros on the diagonal of U are replaced by tiny numbers: the determinant of a singular matrix has a gradient, the
    transposed adjugate, and this approximates it.
    """
    matrix, packed, pivots = values["input"], values["packed"], values["pivots"]
    layout = matrix.meta
    n = layout.shape[1]
    positions = arange((n,), layout.device)
    is_diagonal = _op("eq", _op("unsqueeze", positions, statics=(1,)), positions)
    identity = _op("expand", _op("copy", is_diagonal, statics=(layout.dtype,)), statics=(layout.shape,))
    is_zero = _op("copy", _op("eq", packed, 0), statics=(layout.dtype,))
    regular = _op("add", packed, _op("mul", _op("mul", is_zero, identity), _EPSILON[layout.dtype]))
    scale = values.get("grad_logabs")
    grad_det = values.get("grad_det")
    if grad_det is not None:
        det, *_ = _call_multiple("determinants", matrix, regular, pivots)
        product = _op("mul", grad_det, det)
        scale = product if scale is None else _op("add", scale, product)
    permutation = _op("pivot_permutation", pivots, statics=(n,))
    inverse = _op("factored_solve", matrix, regular, permutation, identity, statics=(True,))
    scale = _op("unsqueeze", _op("unsqueeze", scale, statics=(1,)), statics=(2,))
    return _op("mul", inverse, scale)


def _call_multiple(name: str, *operands: Tensor) -> tuple[Tensor, ...]:
    """Call an op with several results."""
    results = call(registry[name], operands)
    assert isinstance(results, tuple)
    return results


def _triangular_right(node: Node, values: _Values, position: int) -> Tensor:
    if "right_gradient" not in values:
        lower, unit = node.statics
        values["right_gradient"] = _op(
            "triangle_solve", _transpose(values["input"]), values["grad"], statics=(not lower, unit)
        )
    return values["right_gradient"]


def _triangular_matrix(node: Node, values: _Values, position: int) -> Tensor:
    lower, unit = node.statics
    product = _product("bik,bjk->bij", _op("neg", _triangular_right(node, values, 1)), values["out"])
    return _triangle(product, 0 if not unit else -1 if lower else 1, lower)


def _factored_right(node: Node, values: _Values, position: int) -> Tensor:
    if "right_gradient" not in values:
        values["right_gradient"] = _op(
            "factored_solve", values["input"], values["packed"], values["permutation"], values["grad"],
            statics=(not node.statics[0],),
        )  # fmt: skip
    return values["right_gradient"]


def _factored_matrix(node: Node, values: _Values, position: int) -> Tensor:
    right = _op("neg", _factored_right(node, values, 3))
    return _product("bjk,bik->bij" if node.statics[0] else "bik,bjk->bij", right, values["out"])


_FACTORED = ("grad", "input", "packed", "permutation", "out")
_RULES: Mapping[str, Mapping[str, Rule]] = {
    "cholesky_factorize": {"input": Rule(function=_cholesky, operands=("grad_factor", "factor"))},
    "lu_factorize": {"input": Rule(function=_lu, operands=("grad_packed", "packed", "permutation"))},
    "determinants": {
        "input": Rule(function=_determinants, operands=("grad_det", "grad_logabs", "input", "packed", "pivots")),
    },
    "triangle_solve": {
        "input": Rule(function=_triangular_matrix, operands=("grad", "input", "out")),
        "right": Rule(function=_triangular_right, operands=("grad", "input")),
    },
    "factored_solve": {
        "input": Rule(function=_factored_matrix, operands=_FACTORED),
        "right": Rule(function=_factored_right, operands=("grad", "input", "packed", "permutation")),
    },
}
